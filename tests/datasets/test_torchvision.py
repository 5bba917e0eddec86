"""torchvision's datasets hold sample data, in the user's own class and through the user's transforms."""

import importlib.util
import logging

import numpy as np
import pytest
import torch

from openipu.datasets import images, messages

if importlib.util.find_spec("torchvision") is None:
    pytest.skip("torchvision is not installed", allow_module_level=True)
try:
    from torchvision import datasets, transforms
except RuntimeError as error:
    if "torchvision::nms" not in str(error):
        raise
    pytest.skip("torchvision is built for another torch than the installed one", allow_module_level=True)

NAMES = [("MNIST", "mnist"), ("FashionMNIST", "fashion_mnist"), ("CIFAR10", "cifar10")]


@pytest.fixture(autouse=True)
def sample(monkeypatch):
    monkeypatch.setenv("OPENIPU_DATASETS", "sample")


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_a_dataset_is_as_long_as_the_original_and_applies_transforms(kind, name, train, tmp_path):
    dataset = getattr(datasets, kind)(
        tmp_path, train=train, download=True, transform=transforms.ToTensor(), target_transform=lambda label: -label
    )
    pictures, labels = images.split(name, train)
    assert type(dataset) is getattr(datasets, kind)
    assert len(dataset) == len(pictures) == images.LENGTHS[name][0 if train else 1]
    np.testing.assert_array_equal(np.asarray(dataset.data), pictures)
    assert [int(target) for target in dataset.targets] == labels.tolist()
    picture, target = dataset[7]
    expected = torch.from_numpy(pictures[7]).reshape(*pictures[7].shape[:2], -1).permute(2, 0, 1) / 255
    torch.testing.assert_close(picture, expected)
    assert target == -int(labels[7])
    assert dataset.class_to_idx[dataset.classes[labels[7]]] == labels[7]
    assert f"Number of datapoints: {len(dataset)}" in repr(dataset)
    assert not list(tmp_path.iterdir()), "Later runs without the variable would take the sample for the original."


def test_types_are_those_of_torchvision(tmp_path):
    digits, pictures = datasets.MNIST(tmp_path), datasets.CIFAR10(tmp_path, train=False)
    assert (digits.data.dtype, digits.targets.dtype) == (torch.uint8, torch.int64)
    assert (pictures.data.dtype, type(pictures.targets), type(pictures.targets[0])) == (np.uint8, list, int)
    assert digits[0][0].mode == "L"
    assert pictures[0][0].mode == "RGB"


def test_a_class_of_the_user_holds_the_sample_of_its_base(tmp_path):
    class Clothes(datasets.FashionMNIST):
        def __getitem__(self, index):
            return int(self.targets[index])

    clothes = Clothes(tmp_path, train=False)
    assert [clothes[0], len(clothes)] == [int(images.split("fashion_mnist", train=False)[1][0]), 10_000]


@pytest.mark.parametrize("kind", ["KMNIST", "CIFAR100"])
def test_datasets_without_a_sample_are_torchvision_s_own(kind, tmp_path):
    with pytest.raises(RuntimeError, match=r"^Dataset not found.*download it$"):
        getattr(datasets, kind)(tmp_path)


@pytest.mark.parametrize("kind", ["MNIST", "CIFAR10"])
def test_without_the_variable_data_that_is_not_there_names_the_sample(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENIPU_DATASETS", "download")
    with pytest.raises(RuntimeError, match=r"Dataset not found.*\n.*OPENIPU_DATASETS=sample"):
        getattr(datasets, kind)(tmp_path)


def test_a_wrong_argument_is_as_wrong_as_in_torchvision(tmp_path):
    with pytest.raises(TypeError, match="no_such_argument"):
        datasets.MNIST(tmp_path, no_such_argument=1)


def test_users_are_told_once_what_the_data_is(tmp_path, caplog):
    messages.announce.cache_clear()
    with caplog.at_level(logging.WARNING, "openipu.datasets"):
        for train in (True, False):
            datasets.CIFAR10(tmp_path, train=train)
    (record,) = caplog.records
    assert "cifar10 is synthetic" in record.getMessage()
