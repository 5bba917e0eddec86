"""`torchvision.datasets` on machines without a network: the user's class, holding sample data."""

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from openipu import environment
from openipu.datasets.messages import told

# torchvision's classes whose data we have, and the names of it.
SAMPLES = {"MNIST": "mnist", "FashionMNIST": "fashion_mnist", "CIFAR10": "cifar10"}
CIFAR10_CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def steer(module: ModuleType) -> None:
    """Let the datasets of a torchvision module hold sample data when OPENIPU_DATASETS=sample.

    Args:
      module: `torchvision.datasets.mnist` or `torchvision.datasets.cifar`; its classes are changed in place.
    """
    for name in SAMPLES.keys() & vars(module).keys():
        dataset = getattr(module, name)
        if "__init__" in vars(dataset):  # FashionMNIST has that of MNIST.
            dataset.__init__ = with_sample(dataset.__init__, module)


def with_sample(init: Callable[..., None], module: ModuleType) -> Callable[..., None]:
    """The `__init__` of a torchvision dataset, filling it with sample data when OPENIPU_DATASETS=sample.

    Args:
      init: the function of torchvision's class.
      module: the module of the class.

    Returns:
      A function with the same arguments. Nothing is written to or read from `root`.
    """
    signature = inspect.signature(init)

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        # Others derive from these classes: KMNIST and CIFAR100 as well as classes of the user.
        name = SAMPLES.get(next(kind.__name__ for kind in type(self).__mro__ if kind.__module__ == module.__name__))
        if name is None:
            init(self, *args, **kwargs)
        elif environment.use_sample_datasets():
            given = signature.bind(self, *args, **kwargs)
            given.apply_defaults()
            _fill(self, name, module.VisionDataset, **given.arguments)
        else:
            try:
                init(self, *args, **kwargs)
            except (OSError, RuntimeError) as error:
                raise told(error, name) from error

    return __init__


def _fill(
    dataset: Any, name: str, base: Any, *, root: Any, train: bool, transform: Any, target_transform: Any, **_: Any
) -> None:
    """Do what torchvision's `__init__` does, with other data."""
    import torch

    from openipu.datasets import images

    base.__init__(dataset, root, transform=transform, target_transform=target_transform)
    images.announce_origin(name)
    dataset.train = train
    pictures, labels = images.split(name, bool(train))
    if name == "cifar10":
        dataset.data, dataset.targets = pictures, labels.tolist()
        dataset.classes = list(CIFAR10_CLASSES)
        dataset.class_to_idx = {label: index for index, label in enumerate(dataset.classes)}
    else:
        dataset.data, dataset.targets = torch.from_numpy(pictures), torch.from_numpy(labels).long()
