"""The embedded samples of digits and clothes."""

import subprocess
import sys

import numpy as np
import pytest

from openipu import datasets

NAMES = ["mnist", "fashion_mnist"]


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_has_the_form_of_the_whole_and_equally_many_of_each_class(name):
    (x_train, y_train), (x_test, y_test) = getattr(datasets, name)()
    for images, labels, count in ((x_train, y_train, 5000), (x_test, y_test, 1000)):
        assert (images.shape, images.dtype) == ((count, 28, 28), np.uint8)
        assert (labels.shape, labels.dtype) == ((count,), np.uint8)
        assert np.bincount(labels).tolist() == [count // 10] * 10
        assert images.min() == 0
        assert images.max() == 255
        # Mixed well enough for programs that take the first or the last part to validate with.
        assert np.bincount(labels[-count // 5 :], minlength=10).min() > count // 100


@pytest.mark.parametrize("name", NAMES)
def test_no_image_is_in_both_parts(name):
    (x_train, _), (x_test, _) = getattr(datasets, name)()
    assert not {image.tobytes() for image in x_train} & {image.tobytes() for image in x_test}


@pytest.mark.parametrize(("name", "accuracy"), [("mnist", 0.92), ("fashion_mnist", 0.78)])
def test_the_labels_belong_to_the_images(name, accuracy):
    (x_train, y_train), (x_test, y_test) = getattr(datasets, name)()
    train, test = (x.reshape(len(x), -1).astype(np.float32) / 255 for x in (x_train, x_test))
    distance = (train**2).sum(1) - 2 * test @ train.T
    assert np.mean(y_train[distance.argmin(1)] == y_test) > accuracy


def test_importing_the_datasets_does_not_import_numpy():
    modules = "openipu.datasets.keras, openipu.datasets.torchvision"
    check = f"import sys, {modules}; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
