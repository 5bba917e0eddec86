"""Samples of MNIST and Fashion-MNIST that come with openipu, for machines without a network.

`keras.datasets` and `torchvision.datasets` give them in the lengths of the originals, if OPENIPU_DATASETS=sample.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    Split = tuple[np.ndarray, np.ndarray]

__all__ = ["fashion_mnist", "mnist"]


def mnist() -> "tuple[Split, Split]":
    """5,000 handwritten digits to train with and 1,000 to test with, equally many of each class.

    Returns:
      `(x_train, y_train), (x_test, y_test)`: uint8 images of shape (n, 28, 28) and uint8 labels of shape (n,),
      as `keras.datasets.mnist.load_data()` returns them for the whole dataset.
    """
    return _load("mnist")


def fashion_mnist() -> "tuple[Split, Split]":
    """5,000 pictures of clothes to train with and 1,000 to test with, equally many of each class.

    Returns:
      `(x_train, y_train), (x_test, y_test)`: uint8 images of shape (n, 28, 28) and uint8 labels of shape (n,),
      as `keras.datasets.fashion_mnist.load_data()` returns them for the whole dataset.
    """
    return _load("fashion_mnist")


def _load(name: str) -> "tuple[Split, Split]":
    # Imported when data is asked for: the hook imports this package whenever Keras is imported.
    from importlib import resources

    import numpy as np

    with (resources.files(__name__) / f"{name}.npz").open("rb") as file, np.load(file, allow_pickle=False) as data:
        return (data["x_train"], data["y_train"]), (data["x_test"], data["y_test"])
