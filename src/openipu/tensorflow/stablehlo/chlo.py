"""Special functions, which XLA writes in its client dialects chlo and mhlo."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from openipu.tensorflow.stablehlo.evaluate import Frame
from openipu.tensorflow.stablehlo.parsed.graph import Op
from openipu.tensorflow.stablehlo.registry import op

_SPECIAL: dict[str, Callable[..., Any]] = {
    "acos": lax.acos,
    "acosh": lax.acosh,
    "asin": lax.asin,
    "asinh": lax.asinh,
    "atan": lax.atan,
    "atanh": lax.atanh,
    "bessel_i1e": lax.bessel_i1e,
    "conj": lax.conj,
    "cosh": lax.cosh,
    "digamma": lax.digamma,
    "erf": lax.erf,
    "erf_inv": lax.erf_inv,
    "erfc": lax.erfc,
    "is_inf": jnp.isinf,
    "is_neg_inf": jnp.isneginf,
    "is_pos_inf": jnp.isposinf,
    "lgamma": lax.lgamma,
    "next_after": lax.nextafter,
    "polygamma": lax.polygamma,
    "sinh": lax.sinh,
    "square": lax.square,
    "tan": lax.tan,
    "zeta": lax.zeta,
}


def _special(function: Callable[..., Any]) -> Callable[..., list]:
    def evaluate(op: Op, values: list, frame: Frame) -> list:
        return [function(*jnp.broadcast_arrays(*values))]

    return evaluate


for _name, _function in _SPECIAL.items():
    op(f"chlo.{_name}", f"mhlo.{_name}", f"chlo.broadcast_{_name}")(_special(_function))


@op("chlo.top_k", "mhlo.topk")
def _top_k(op: Op, values: list, frame: Frame) -> list:
    (x,) = values
    largest = op.attr("largest", True)
    found, indices = lax.top_k(x if largest else lax.neg(x), op.attr("k"))
    kind = op.types[1]
    return [found if largest else lax.neg(found), lax.convert_element_type(indices, getattr(kind, "dtype", np.int32))]


@op("chlo.constant_like")
def _constant_like(op: Op, values: list, frame: Frame) -> list:
    return [lax.full_like(values[0], op.attr("value"))]
