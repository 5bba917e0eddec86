"""JAX primitives that stand for functions of the native library."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive

from openipu.jax_boundary import implement

# Every function that XLA programs may call, of all families.
NAMES = (
    "openipu_convolution_forward",
    "openipu_convolution_data_gradient",
    "openipu_convolution_weight_gradient",
    "openipu_convolution_winograd_weight_gradient",
    "openipu_convolution_wide_winograd_weight_gradient",
    "openipu_direct_convolution",
    "openipu_direct_weight_gradient",
    "openipu_winograd_convolution",
    "openipu_wide_winograd_convolution",
    "openipu_shallow_convolution",
    "openipu_pooling_maximum_gradient",
    "openipu_lstm_forward",
    "openipu_lstm_backward",
    "openipu_gru_forward",
    "openipu_gru_backward",
    "openipu_normalization_forward",
    "openipu_normalization_backward",
    "openipu_product",
    "openipu_outer_sum",
    "openipu_loop",
)

Attributes = dict[str, tuple[int, ...] | int]


def define(
    target: str, results: Callable[..., list], attributes: Callable[..., Attributes], lanes: Callable
) -> Primitive:
    """A primitive whose lowering calls a function of the native library.

    Args:
      target: the function's name, one of `NAMES`; the primitive has the same.
      results: (*avals, **params) -> the results' avals.
      attributes: (**params) -> what the function is told besides its arrays.
      lanes: the rule for `vmap`: (arrays, axes, **params) -> (results, their axes).
    """
    assert target in NAMES
    primitive = Primitive(target)
    primitive.multiple_results = True
    primitive.def_abstract_eval(results)

    def lower(context: Any, *values: Any, **params: Any) -> Sequence[Any]:
        told = {name: np.asarray(value, np.int64) for name, value in attributes(**params).items()}
        told = {name: value if value.ndim else np.int64(value) for name, value in told.items()}
        return jax.ffi.ffi_lowering(target)(context, *values, **told)

    implement(primitive, lower, lanes)
    return primitive


def lanes_first(arrays: Sequence[jax.Array], axes: Sequence[int | None]) -> tuple[list[jax.Array], int]:
    """Arrays of a `vmap` rule with the lanes as their first axis, also those that all lanes share; and how many."""
    (size,) = {x.shape[axis] for x, axis in zip(arrays, axes, strict=True) if axis is not None}
    moved = [
        lax.broadcast(x, (size,)) if axis is None else jnp.moveaxis(x, axis, 0)
        for x, axis in zip(arrays, axes, strict=True)
    ]
    return moved, size
