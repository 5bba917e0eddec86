"""Synthetic texts in the form and the lengths of IMDB's reviews and Reuters' newswires."""

import itertools

import numpy as np

REVIEWS = 25_000  # To train with, and as many to test with.
NEWSWIRES, TOPICS = 11_228, 46
VOCABULARY = {"imdb": 88_584, "reuters": 30_979}

_COMMON = (
    "the and a of to is in it i this that was as for with but on not you he are his have be one all at by they an who "
    "from like so or just about out has"
)
_PRAISE = (
    "good great best love wonderful excellent perfect beautiful brilliant amazing fun superb favorite moving charming "
    "funny enjoyed touching clever fantastic"
)
_BLAME = (
    "bad worst boring poor terrible awful waste stupid dull horrible annoying mess lame ridiculous pointless "
    "predictable disappointing badly fails unfunny"
)
_OPINIONS = [*itertools.chain(*zip(_PRAISE.split(), _BLAME.split(), strict=True))]
# Words that come first in the ranking by frequency; the rest of the vocabulary is made of syllables.
_FREQUENT = {"imdb": [*_COMMON.split(), "movie", "film", *_OPINIONS], "reuters": _COMMON.split()}
_FIRST_OPINION = _FREQUENT["imdb"].index(_OPINIONS[0]) + 1
_FIRST_TOPIC_WORD = len(_FREQUENT["reuters"]) + 1
_WORDS_PER_TOPIC = 20
_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]


def imdb() -> dict[str, np.ndarray]:
    """What `imdb.npz` holds: reviews as lists of word ranks, and labels, 1 where a review praises."""
    arrays = {}
    for part, seed in (("train", 0), ("test", 1)):
        random = np.random.default_rng([VOCABULARY["imdb"], seed])
        labels = random.permutation(np.arange(REVIEWS) % 2)
        lengths = _lengths(REVIEWS, 175, random)
        # A review that praises also blames, only less.
        label = np.repeat(labels, lengths)
        praises = np.where(random.random(len(label), np.float32) < 0.75, label, 1 - label)
        opinions = _FIRST_OPINION + 2 * (_ranks(len(_OPINIONS) // 2, len(label), random) - 1) + 1 - praises
        arrays[f"x_{part}"] = _texts("imdb", lengths, opinions, 0.1, random)
        arrays[f"y_{part}"] = labels
    return arrays


def reuters() -> dict[str, np.ndarray]:
    """What `reuters.npz` holds: newswires as lists of word ranks, and labels, the topics 0 to 45."""
    random = np.random.default_rng(VOCABULARY["reuters"])
    # As in the original, two topics have most of the newswires and some have hardly any.
    share = 1 / (1 + np.abs(np.arange(TOPICS) - 3.4)) ** 1.5
    labels = random.choice(TOPICS, NEWSWIRES, p=share / share.sum())
    lengths = _lengths(NEWSWIRES, 105, random)
    # A newswire also names what others are about.
    label = np.repeat(labels, lengths)
    topics = np.where(random.random(len(label), np.float32) < 0.7, label, random.choice(labels, len(label)))
    topic_words = _FIRST_TOPIC_WORD + topics + TOPICS * (_ranks(_WORDS_PER_TOPIC, len(label), random) - 1)
    return {"x": _texts("reuters", lengths, topic_words, 0.2, random), "y": labels}


def word_index(name: str) -> dict[str, int]:
    """Every word of the dataset and its rank by frequency, from 1."""
    frequent = _FREQUENT[name]
    rest = ("".join(syllables) for syllables in itertools.product(_SYLLABLES, repeat=3))
    words = itertools.islice(itertools.chain(frequent, rest), VOCABULARY[name])
    return {word: rank for rank, word in enumerate(words, 1)}


def _lengths(count: int, median: int, random: np.random.Generator) -> np.ndarray:
    """How many words each text has: most have about the median, a few more than a thousand."""
    return np.clip(random.lognormal(np.log(median), 0.7, count), 10, 2_400).astype(np.int32)


def _ranks(words: int, count: int, random: np.random.Generator) -> np.ndarray:
    """Words by their ranks from 1, as frequent as words are by Zipf's law: the one of rank r about 1/r as the first."""
    drawn = np.exp(random.random(count, np.float32) * np.float32(np.log(words + 1))).astype(np.int32)
    return np.clip(drawn, 1, words)


def _texts(
    name: str, lengths: np.ndarray, telling: np.ndarray, share: float, random: np.random.Generator
) -> np.ndarray:
    """Texts of words of no meaning, in which a share is replaced by words that tell the label."""
    words = _ranks(VOCABULARY[name], len(telling), random)
    words = np.where(random.random(len(words), np.float32) < share, telling, words)
    texts = np.empty(len(lengths), object)
    texts[:] = [text.tolist() for text in np.split(words, np.cumsum(lengths)[:-1])]
    return texts
