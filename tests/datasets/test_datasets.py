"""The embedded samples, and `keras.datasets` answering from them."""

import importlib
import subprocess
import sys
import urllib.error

import numpy as np
import pytest

from openipu import datasets
from openipu.datasets.keras import with_sample

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
    check = "import sys, openipu.datasets.keras; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("package", ["keras", "keras._tf_keras.keras", "tensorflow.keras", "tf_keras"])
def test_every_keras_answers_from_the_sample(package, name, monkeypatch):
    importlib.import_module("tensorflow")
    monkeypatch.setenv("OPENIPU_DATASETS", "sample")
    load_data = importlib.import_module(f"{package}.datasets.{name}").load_data
    arguments = {"path": "mine.npz"} if name == "mnist" else {}
    for given, expected in zip(load_data(**arguments), getattr(datasets, name)(), strict=True):
        np.testing.assert_array_equal(given[0], expected[0])
        np.testing.assert_array_equal(given[1], expected[1])
    with pytest.raises(TypeError, match="no_such_argument"):
        load_data(no_such_argument=1)


@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_a_failed_download_names_the_sample(package, monkeypatch):
    def get_file(*args, **kwargs):
        raise Exception("URL fetch failure on somewhere: no network")

    module = importlib.import_module(f"{package}.src.datasets.mnist")
    monkeypatch.delenv("OPENIPU_DATASETS", raising=False)
    monkeypatch.setattr(module, "get_file", get_file)
    with pytest.raises(Exception, match=r"URL fetch failure.*\n.*OPENIPU_DATASETS=sample") as caught:
        importlib.import_module(f"{package}.datasets.mnist").load_data()
    assert type(caught.value) is Exception
    assert str(caught.value.__cause__) == "URL fetch failure on somewhere: no network"


def test_without_the_variable_the_call_goes_to_keras(monkeypatch):
    monkeypatch.delenv("OPENIPU_DATASETS", raising=False)

    def load_data(path="mnist.npz"):
        """Keras' own words."""
        return path

    wrapped = with_sample(load_data, "mnist")
    assert wrapped("mine.npz") == "mine.npz"
    assert (wrapped.__name__, wrapped.__doc__) == ("load_data", "Keras' own words.")


@pytest.mark.parametrize("error", [ConnectionResetError("reset"), ValueError("hash"), TimeoutError("slow")])
def test_the_error_keeps_its_type_and_cause(error, monkeypatch):
    monkeypatch.delenv("OPENIPU_DATASETS", raising=False)

    def load_data():
        raise error

    with pytest.raises(type(error), match=r"OPENIPU_DATASETS=sample") as caught:
        with_sample(load_data, "mnist")()
    assert caught.value.__cause__ is error


def test_an_error_with_fields_keeps_them_and_carries_a_note(monkeypatch):
    monkeypatch.delenv("OPENIPU_DATASETS", raising=False)

    def load_data():
        raise urllib.error.HTTPError("somewhere", 503, "busy", None, None)

    with pytest.raises(urllib.error.HTTPError) as caught:
        with_sample(load_data, "mnist")()
    assert caught.value.code == 503
    assert "OPENIPU_DATASETS=sample" in caught.value.__notes__[0]


def test_a_wrong_value_of_the_variable_lists_the_valid_ones(monkeypatch):
    monkeypatch.setenv("OPENIPU_DATASETS", "samples")
    with pytest.raises(ValueError, match=r"one of: download, sample.*OPENIPU_DATASETS='samples'"):
        with_sample(lambda: None, "mnist")()
