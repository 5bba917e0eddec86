"""`keras.datasets` on machines without a network: Keras' own functions, reading sample data for a download."""

import functools
import inspect
import io
from collections.abc import Callable
from pathlib import PurePath
from types import ModuleType
from typing import TYPE_CHECKING, Any

from openipu import environment
from openipu.datasets.messages import announce, told

# What reads data is imported when data is asked for: the hook imports this module whenever Keras is imported.
if TYPE_CHECKING:
    import numpy as np

TEXTS = ("imdb", "reuters")


def steer(module: ModuleType) -> None:
    """Let a dataset module of Keras read sample data when OPENIPU_DATASETS=sample.

    Keras' `load_data` stays: it treats its arguments, types and layouts as ever. Only what it reads is ours.

    Args:
      module: `keras.src.datasets.mnist`, say; it is changed in place.
    """
    name = module.__name__.rpartition(".")[2]
    functions = module.__dict__
    functions["get_file"] = with_sample(functions["get_file"], name)
    if "load_batch" in functions:
        functions["load_batch"] = _instead(functions["load_batch"], _cifar_batch, name)
    if "get_word_index" in functions:
        functions["get_word_index"] = _instead(functions["get_word_index"], _word_index, name)


def with_sample(get_file: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Keras' `get_file` as the dataset `name` calls it, giving a file in memory when OPENIPU_DATASETS=sample.

    Args:
      get_file: Keras' function that downloads a file unless it is there.
      name: the dataset's.

    Returns:
      A function with the arguments of `get_file`. Without the variable it is Keras' own; only a failure is told
      differently.
    """

    @functools.wraps(get_file)
    def get(*args: Any, **kwargs: Any) -> Any:
        if environment.use_sample_datasets():
            return _file(name, kwargs["origin"].rpartition("/")[2])
        try:
            return get_file(*args, **kwargs)
        except Exception as error:
            raise told(error, name) from error

    return get


def _instead(function: Callable[..., Any], sample: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Keras' function, or `sample` with the dataset's name and the same arguments when OPENIPU_DATASETS=sample."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def choose(*args: Any, **kwargs: Any) -> Any:
        if not environment.use_sample_datasets():
            return function(*args, **kwargs)
        given = signature.bind(*args, **kwargs)  # A wrong argument is as wrong here as it is in Keras.
        given.apply_defaults()
        return sample(name, **given.arguments)

    return choose


def _file(name: str, file: str) -> io.BytesIO | str:
    """What Keras reads: an open file in place of a path, which NumPy and gzip take as well."""
    if name in TEXTS:
        from openipu.datasets import texts

        announce(name)
        return _npz(getattr(texts, name)())
    from openipu.datasets import images

    images.announce_origin(name)
    if name == "mnist":
        parts = {part: images.split(name, part == "train") for part in ("train", "test")}
        return _npz({f"{axis}_{part}": array for part in parts for axis, array in zip("xy", parts[part], strict=True)})
    if name == "fashion_mnist":
        pictures, labels = images.split(name, train=file.startswith("train"))
        return _idx_gz(pictures if "images" in file else labels)
    return file  # Of CIFAR only the folder's name is used, to tell its batches apart.


def _npz(arrays: "dict[str, np.ndarray]") -> io.BytesIO:
    import numpy as np

    file = io.BytesIO()
    np.savez(file, allow_pickle=True, **arrays)
    file.seek(0)
    return file


def _idx_gz(array: "np.ndarray") -> io.BytesIO:
    """A gzipped IDX file of bytes, as Fashion-MNIST comes in."""
    import gzip

    import numpy as np

    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return io.BytesIO(gzip.compress(header + array.tobytes(), compresslevel=0))


def _cifar_batch(name: str, fpath: str, label_key: str) -> "tuple[np.ndarray, list[int]]":
    """What `load_batch` reads from the file of a batch: images with their channels first, and a list of labels."""
    from openipu.datasets import images

    file = PurePath(fpath).name
    # CIFAR-10's five files to train with are each as long as the one to test with.
    length = 10_000 if file.startswith("data_batch") else None
    pictures, labels = images.split(name, train=not file.startswith("test"), length=length)
    if label_key == "coarse_labels":
        labels = images.superclass(labels)
    return pictures.transpose(0, 3, 1, 2), labels.tolist()


def _word_index(name: str, path: str) -> dict[str, int]:
    from openipu.datasets import texts

    return texts.word_index(name)
