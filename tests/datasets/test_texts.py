"""Synthetic texts: words as frequent as words are, and labels that can be learnt from them."""

import numpy as np
import pytest

from openipu.datasets import texts


@pytest.fixture(scope="module")
def reviews():
    return texts.imdb()


def counts(documents, words=1_200):
    return np.stack([np.bincount([word for word in text if word < words], minlength=words) for text in documents])


def bayes_accuracy(train, test, classes):
    """How often a naive Bayes classifier, which knows nothing but how often words occur, is right."""
    (x_train, y_train), (x_test, y_test) = train, test
    words = np.stack([1 + counts(x_train[y_train == label]).sum(0) for label in range(classes)])
    scores = counts(x_test) @ np.log(words / words.sum(1, keepdims=True)).T
    return np.mean(scores.argmax(1) == y_test)


def test_reviews_can_be_told_apart_but_not_all_of_them(reviews):
    train, test = ((reviews[f"x_{part}"][:2_000], reviews[f"y_{part}"][:2_000]) for part in ("train", "test"))
    assert 0.88 < bayes_accuracy(train, test, 2) < 0.99


def test_newswires_can_be_told_apart():
    newswires = texts.reuters()
    train, test = ((newswires["x"][part], newswires["y"][part]) for part in (slice(5_000), slice(5_000, 7_000)))
    assert bayes_accuracy(train, test, texts.TOPICS) > 0.75
    assert max(max(text) for text in newswires["x"]) == texts.VOCABULARY["reuters"]
    # As in the original, the largest topics have more than all others together.
    sizes = np.bincount(newswires["y"], minlength=texts.TOPICS)
    assert sizes.min() > 0
    assert set(np.argsort(sizes)[-2:]) == {3, 4}


def test_the_vocabulary_of_the_reviews_is_used_from_the_most_to_the_least_frequent_word(reviews):
    used = np.bincount(np.concatenate(reviews["x_train"]))
    assert (used[0], len(used)) == (0, texts.VOCABULARY["imdb"] + 1)
    assert used[1] > used[10] > used[100] > used[1_000] > used[10_000:].mean()


def test_a_review_praises_with_words_that_praise(reviews):
    index = texts.word_index("imdb")
    words, labels = counts(reviews["x_test"][:2_000]), reviews["y_test"][:2_000]
    for praise, blame in (("good", "bad"), ("wonderful", "terrible")):
        for word, likely in ((praise, 1), (blame, 0)):
            assert words[labels == likely, index[word]].sum() > 1.5 * words[labels != likely, index[word]].sum()


@pytest.mark.parametrize("name", ["imdb", "reuters"])
def test_every_rank_has_a_word_of_its_own(name):
    index = texts.word_index(name)
    assert sorted(index.values()) == list(range(1, texts.VOCABULARY[name] + 1))
    assert index["the"] == 1
