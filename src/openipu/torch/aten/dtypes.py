"""Dtypes of torch and JAX, and the promotion rules of torch."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

_PAIRS = {
    torch.bool: jnp.bool_,
    torch.uint8: jnp.uint8,
    torch.int8: jnp.int8,
    torch.int16: jnp.int16,
    torch.int32: jnp.int32,
    torch.int64: jnp.int64,
    torch.uint16: jnp.uint16,
    torch.uint32: jnp.uint32,
    torch.uint64: jnp.uint64,
    torch.float16: jnp.float16,
    torch.bfloat16: jnp.bfloat16,
    torch.float32: jnp.float32,
    torch.float64: jnp.float64,
}
_TO_JAX = {key: np.dtype(value) for key, value in _PAIRS.items()}
_TO_TORCH = {value: key for key, value in _TO_JAX.items()}

Scalar = bool | int | float


def to_jax(dtype: torch.dtype) -> np.dtype:
    """The JAX dtype of a torch dtype; 64-bit ones narrow when the caller has not enabled them."""
    return jax.dtypes.canonicalize_dtype(_TO_JAX[dtype])


def to_numpy(dtype: torch.dtype) -> np.dtype:
    """The NumPy dtype of a torch dtype."""
    return _TO_JAX[dtype]


def known(dtype: torch.dtype) -> bool:
    """Whether a torch dtype exists in JAX programs of ours (complex and quantised ones do not)."""
    return dtype in _TO_JAX


def to_torch(dtype: Any) -> torch.dtype:
    """The torch dtype of a JAX dtype."""
    return _TO_TORCH[np.dtype(dtype)]


def is_float(x: Any) -> bool:
    """Whether an array has a floating-point dtype."""
    return jnp.issubdtype(x.dtype, jnp.floating)


def is_bool(x: Any) -> bool:
    """Whether an array is boolean."""
    return x.dtype == np.bool_


def wide(x: jax.Array) -> jax.Array:
    """The array in at least float32: torch computes half precision so and rounds once at the end."""
    return x.astype(jnp.float32) if not is_float(x) or x.dtype.itemsize < 4 else x


def accumulator(x: jax.Array, dtype: torch.dtype | None = None) -> jax.Array:
    """The array as torch accumulates it: in `dtype` if given, integers as int64."""
    if dtype is not None:
        return x.astype(to_jax(dtype))
    return x if is_float(x) else x.astype(to_jax(torch.int64))


def result_dtype(*values: Any) -> np.dtype:
    """The dtype torch promotes operands to: arrays before zero-dimensional arrays before Python numbers."""
    groups: list[torch.dtype | None] = [None, None, None]
    for value in values:
        if isinstance(value, bool | int | float):
            place, dtype = 2, _scalar_dtype(value)
        else:
            place, dtype = (0 if value.ndim else 1), to_torch(value.dtype)
        held = groups[place]
        groups[place] = dtype if held is None else torch.promote_types(held, dtype)
    dtype = _combine(groups[0], _combine(groups[1], groups[2]))
    assert dtype is not None
    return to_jax(dtype)


def promote(*values: Any, floating: bool = False) -> list[jax.Array]:
    """The operands as arrays of one dtype; `floating` makes integers float32 as true division does."""
    dtype = result_dtype(*values)
    if floating and not jnp.issubdtype(dtype, jnp.floating):
        dtype = np.dtype(np.float32)
    return [jnp.asarray(value, dtype) for value in values]


def float_value(x: Any) -> jax.Array:
    """An operand as floating point, as torch's mathematical functions take it."""
    return promote(x, floating=True)[0]


def _scalar_dtype(value: Scalar) -> torch.dtype:
    if isinstance(value, bool):
        return torch.bool
    return torch.int64 if isinstance(value, int) else torch.get_default_dtype()


def _combine(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    if higher is None or lower is None:
        return lower if higher is None else higher
    if higher.is_floating_point:
        return higher
    if higher == torch.bool or lower.is_floating_point:
        return torch.promote_types(higher, lower)
    return higher
