"""`keras.datasets` reads sample data, with the arguments, types and lengths of the original."""

import importlib
import logging
import urllib.error

import numpy as np
import pytest

from openipu import datasets
from openipu.datasets import messages
from openipu.datasets.keras import with_sample

PACKAGES = ["keras", "keras._tf_keras.keras", "tensorflow.keras", "tf_keras"]


@pytest.fixture(autouse=True)
def sample(monkeypatch):
    importlib.import_module("tensorflow")
    monkeypatch.setenv("OPENIPU_DATASETS", "sample")


def module(package, name):
    return importlib.import_module(f"{package}.datasets.{name}")


def form(splits):
    return [(array.shape, str(array.dtype)) for split in splits for array in split]


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
@pytest.mark.parametrize("package", PACKAGES)
def test_images_are_the_embedded_ones_over_and_over(package, name):
    given = module(package, name).load_data(**{"path": "mine.npz"} if name == "mnist" else {})
    sizes = ((60_000, 28, 28), "uint8"), ((60_000,), "uint8"), ((10_000, 28, 28), "uint8"), ((10_000,), "uint8")
    assert form(given) == list(sizes)
    for split, embedded in zip(given, getattr(datasets, name)(), strict=True):
        for long, short in zip(split, embedded, strict=True):
            for start in (0, len(long) - len(short)):
                np.testing.assert_array_equal(long[start : start + len(short)], short)


@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_cifar_has_the_form_of_the_original(package):
    images = [(50_000, 32, 32, 3), (10_000, 32, 32, 3)]
    for name, arguments, dtype, classes in (
        ("cifar10", {}, "uint8", 10),
        ("cifar100", {}, "int64", 100),
        ("cifar100", {"label_mode": "coarse"}, "int64", 20),
    ):
        splits = module(package, name).load_data(**arguments)
        assert form(splits) == [
            (images[0], "uint8"), ((50_000, 1), dtype), (images[1], "uint8"), ((10_000, 1), dtype)
        ]  # fmt: skip
        for _, labels in splits:
            assert np.bincount(labels[:, 0]).tolist() == [len(labels) // classes] * classes


def test_cifar_follows_the_layout_that_keras_is_set_to(monkeypatch):
    keras = importlib.import_module("keras")
    (_, _), (last, _) = keras.datasets.cifar10.load_data()
    before = keras.config.image_data_format()
    keras.config.set_image_data_format("channels_first")
    try:
        (_, _), (first, _) = keras.datasets.cifar10.load_data()
    finally:
        keras.config.set_image_data_format(before)
    np.testing.assert_array_equal(first.transpose(0, 2, 3, 1), last)


def test_imdb_takes_the_arguments_of_the_original():
    splits = module("keras", "imdb").load_data(num_words=500, skip_top=20, start_char=None, oov_char=None)
    for texts, labels in splits:
        assert len(texts) == 25_000
        assert labels.dtype == np.int64
        assert np.bincount(labels).tolist() == [12_500, 12_500]
        assert {type(texts), type(texts[0]), type(texts[0][0])} == {np.ndarray, list, int}
        words = np.concatenate(texts[:2_000])
        assert (words.min(), words.max()) == (20, 499)


@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_reuters_takes_the_arguments_of_the_original(package):
    reuters = module(package, "reuters")
    (x_train, y_train), (x_test, y_test) = reuters.load_data()
    assert (len(x_train), len(x_test)) == (8_982, 2_246)
    assert set(y_train) == set(range(46)) >= set(y_test)
    assert all(text[0] == 1 for text in x_train)
    (x_train, _), (x_test, _) = reuters.load_data(num_words=1_000, test_split=0.1)
    assert (len(x_train), len(x_test)) == (10_105, 1_123)
    assert max(max(text) for text in x_train) == 999
    (short, _), _ = reuters.load_data(maxlen=80)
    assert 0 < len(short) < len(x_train)
    assert max(len(text) for text in short) < 80
    words = {rank + 3: word for word, rank in reuters.get_word_index().items()}
    assert all(rank in words for rank in x_train[0] if rank > 2)
    with pytest.raises(TypeError, match="no_such_argument"):
        reuters.get_word_index(no_such_argument=1)


def test_a_wrong_argument_is_as_wrong_as_in_keras():
    with pytest.raises(TypeError, match="no_such_argument"):
        module("keras", "mnist").load_data(no_such_argument=1)
    with pytest.raises(ValueError, match="label_mode"):
        module("keras", "cifar100").load_data(label_mode="finest")


def test_users_are_told_once_what_the_data_is(caplog):
    messages.announce.cache_clear()
    with caplog.at_level(logging.WARNING, "openipu.datasets"):
        for _ in range(2):
            module("keras", "mnist").load_data()
            module("keras", "reuters").load_data()
    digits, newswires = (record.getMessage() for record in caplog.records)
    assert "mnist is 6,000 of its images, repeated" in digits
    assert "reuters is synthetic" in newswires


@pytest.mark.parametrize("name", ["mnist", "cifar10", "imdb"])
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_a_failed_download_names_the_sample(package, name, monkeypatch):
    def get_file(*args, **kwargs):
        raise Exception("URL fetch failure on somewhere: no network")

    monkeypatch.setenv("OPENIPU_DATASETS", "download")
    source = importlib.import_module(f"{package}.src.datasets.{name}")
    monkeypatch.setattr(source, "get_file", with_sample(get_file, name))
    with pytest.raises(Exception, match=rf"URL fetch failure.*\n.*OPENIPU_DATASETS=sample.*{name}") as caught:
        module(package, name).load_data()
    assert type(caught.value) is Exception
    assert str(caught.value.__cause__) == "URL fetch failure on somewhere: no network"


def test_without_the_variable_the_call_goes_to_keras(monkeypatch):
    monkeypatch.delenv("OPENIPU_DATASETS", raising=False)

    def get_file(fname, origin):
        """Keras' own words."""
        return fname, origin

    wrapped = with_sample(get_file, "mnist")
    assert wrapped("mine.npz", origin="somewhere") == ("mine.npz", "somewhere")
    assert (wrapped.__name__, wrapped.__doc__) == ("get_file", "Keras' own words.")


def test_an_error_with_fields_keeps_them_and_carries_a_note(monkeypatch):
    monkeypatch.delenv("OPENIPU_DATASETS", raising=False)

    def get_file():
        raise urllib.error.HTTPError("somewhere", 503, "busy", None, None)

    with pytest.raises(urllib.error.HTTPError) as caught:
        with_sample(get_file, "mnist")()
    assert caught.value.code == 503
    assert "OPENIPU_DATASETS=sample" in caught.value.__notes__[0]


@pytest.mark.parametrize("error", [ConnectionResetError("reset"), ValueError("hash"), TimeoutError("slow")])
def test_the_error_keeps_its_type(error):
    told = messages.told(error, "mnist")
    assert type(told) is type(error)
    assert str(told).startswith(f"{error}\n")


def test_a_wrong_value_of_the_variable_lists_the_valid_ones(monkeypatch):
    monkeypatch.setenv("OPENIPU_DATASETS", "samples")
    with pytest.raises(ValueError, match=r"one of: download, sample.*OPENIPU_DATASETS='samples'"):
        module("keras", "mnist").load_data()
