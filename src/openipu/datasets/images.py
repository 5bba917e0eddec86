"""Images of the datasets in the originals' lengths: samples are repeated, CIFAR's pictures are synthetic."""

import functools

import numpy as np

from openipu import datasets
from openipu.datasets.messages import announce

Split = tuple[np.ndarray, np.ndarray]

# Of the original, to train and to test with.
LENGTHS = {
    "mnist": (60_000, 10_000),
    "fashion_mnist": (60_000, 10_000),
    "cifar10": (50_000, 10_000),
    "cifar100": (50_000, 10_000),
}
SYNTHETIC = {"cifar10": 10, "cifar100": 100}
_TRAIN, _TEST = 5_000, 1_000  # Images that differ.


def split(name: str, train: bool, length: int | None = None) -> Split:
    """One part of a dataset, as long as the original's.

    Args:
      name: a name of `LENGTHS`.
      train: whether it is the part to train with.
      length: another length, for a piece of the part.

    Returns:
      uint8 images of shape (n, 28, 28) or (n, 32, 32, 3) and uint8 labels of shape (n,).
    """
    images, labels = _synthetic(SYNTHETIC[name], train) if name in SYNTHETIC else _embedded(name, train)
    length = length or LENGTHS[name][0 if train else 1]
    return repeated(images, length), repeated(labels, length)


def announce_origin(name: str) -> None:
    """Say once whether a dataset's images are a sample of the original or synthetic."""
    announce(name, 0 if name in SYNTHETIC else _TRAIN + _TEST)


def repeated(array: np.ndarray, length: int) -> np.ndarray:
    """The array over and over, cut to a length."""
    return np.resize(array, (length, *array.shape[1:]))


def superclass(labels: np.ndarray) -> np.ndarray:
    """The coarse label of each of CIFAR-100's fine ones: its pictures have the same stripes in other colours."""
    return labels // 5


def _embedded(name: str, train: bool) -> Split:
    return getattr(datasets, name)()[0 if train else 1]


@functools.cache
def _synthetic(classes: int, train: bool) -> Split:
    """Noisy pictures of stripes, equally many of each class: slant, width and colour are those of the class."""
    random = np.random.default_rng([classes, train])
    count = _TRAIN if train else _TEST
    labels = random.permutation(np.arange(count) % classes).astype(np.uint8)
    if classes == SYNTHETIC["cifar10"]:
        stripes, hue = labels, labels / 10
    else:
        stripes, hue = superclass(labels), labels % 5 / 5
    wave = _stripes(stripes, random)[..., None]
    # A hue never comes alone: it varies from picture to picture, into the neighbouring classes.
    hue = hue + random.normal(0, 0.08, count)
    colour = np.cos(2 * np.pi * (hue[:, None] - np.arange(3) / 3))[:, None, None, :].astype(np.float32)
    light = random.normal(120, 20, (count, 1, 1, 1)).astype(np.float32)
    noise = random.standard_normal((count, 32, 32, 3), np.float32)
    pictures = light + 35 * wave + 25 * wave * colour + 25 * colour + 30 * noise
    return np.clip(pictures, 0, 255).astype(np.uint8), labels


def _stripes(kind: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Waves from -1 to 1: ten slants, then the same ten with narrower stripes, each picture with a phase of its own."""
    slant = (np.pi * (kind % 10) / 10)[:, None, None]
    waves = (3 + 2 * (kind // 10))[:, None, None]
    phase = random.uniform(0, 2 * np.pi, (len(kind), 1, 1))
    y, x = np.mgrid[:32, :32] / 32
    return np.sin(2 * np.pi * waves * (x * np.cos(slant) + y * np.sin(slant)) + phase).astype(np.float32)
