"""CIFAR's synthetic pictures: always the same, and a classifier can learn from them."""

import numpy as np
import pytest

from openipu.datasets import images


def features(pictures):
    """Colours, and the strength of the waves of every slant and width, wherever they begin."""
    grey = pictures.mean(-1) - pictures.mean((1, 2, 3))[:, None, None]
    waves = np.abs(np.fft.rfft2(grey))[:, :, :10].reshape(len(pictures), -1)
    colours = pictures.mean((1, 2)) - pictures.mean((1, 2, 3))[:, None]
    return np.concatenate([waves / 10_000, colours / 20], axis=1)


@pytest.mark.parametrize(("name", "classes"), [("cifar10", 10), ("cifar100", 100)])
def test_what_is_learnt_from_one_part_holds_for_the_other(name, classes):
    (x_train, y_train), (x_test, y_test) = (
        images.split(name, train, 1_000 if train else 500) for train in (True, False)
    )
    train, test = features(x_train), features(x_test)
    centres = np.stack([train[y_train == label].mean(0) for label in range(classes)])
    nearest = ((test[:, None] - centres) ** 2).sum(-1).argmin(1)
    assert np.mean(nearest == y_test) > 0.7


def test_the_pictures_are_always_the_same_and_the_user_s_to_change():
    first, _ = images.split("cifar10", train=False)
    expected = first[:1_000].copy()
    first[:] = 0
    images._synthetic.cache_clear()
    second, _ = images.split("cifar10", train=False)
    np.testing.assert_array_equal(second[:1_000], expected)
    second[:] = 0
    np.testing.assert_array_equal(images.split("cifar10", train=False)[0][-1_000:], expected)


def test_the_superclasses_of_cifar100_have_five_classes_each():
    labels = np.arange(100)
    assert np.bincount(images.superclass(labels)).tolist() == [5] * 20
