"""Products of the native library: matrices, or stacks of them, that are read by their strides."""

import ctypes
import functools
import math
from typing import Any

import attrs
import jax
from jax.core import ShapedArray

from openipu.compiler.native import targets
from openipu.compiler.native.loading import Library

# How oneDNN numbers float32.
_FLOAT32 = 3

Sizes = tuple[int, ...]


@attrs.frozen
class Product:
    """Stacks of matrices of equal rank.

    Attributes:
      left, right: sizes (.., rows, depth) and (.., depth, columns).
      left_steps, right_steps: how far apart elements are.
      result: the shape of the result; its elements are in the order (.., rows, columns).
    """

    left: Sizes
    left_steps: Sizes
    right: Sizes
    right_steps: Sizes
    result: Sizes

    @property
    def shape(self) -> Sizes:
        """All of it as the numbers that the library reads."""
        return (len(self.left), *self.left, *self.left_steps, *self.right, *self.right_steps)

    @property
    def multiplications(self) -> int:
        """How many multiply-adds there are."""
        return math.prod(self.left) * self.right[-1]


@functools.lru_cache(maxsize=4096)
def implementation(library: Library, product: Product) -> str:
    """What oneDNN would run; empty if it has nothing."""
    ask = library.handle.openipu_product_implementation
    ask.restype, ask.argtypes = ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    numbers = (ctypes.c_int64 * len(product.shape))(*product.shape)
    return ask(numbers, len(product.shape), _FLOAT32).decode()


def multiply(left: jax.Array, right: jax.Array, product: Product) -> jax.Array:
    """The product of two arrays of any shape, read as it says."""
    return PRODUCT.bind(left, right, product=product)[0]


def _results(left: Any, right: Any, *, product: Product) -> list[ShapedArray]:
    return [ShapedArray(product.result, left.dtype)]


def _attributes(*, product: Product) -> targets.Attributes:
    return {"shape": product.shape}


def _lanes(arrays: Any, axes: Any, *, product: Product) -> tuple:
    raise NotImplementedError("native products stand in finished executions, where lanes are dimensions already")


PRODUCT = targets.define("openipu_product", _results, _attributes, _lanes)
