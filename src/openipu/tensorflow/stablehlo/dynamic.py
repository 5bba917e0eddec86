"""Operations on shapes known only while running, where their results still have static shapes."""

from typing import Any

import numpy as np
from jax import lax

from openipu.tensorflow.exceptions import UnsupportedError
from openipu.tensorflow.stablehlo.evaluate import Frame
from openipu.tensorflow.stablehlo.parsed.graph import Op
from openipu.tensorflow.stablehlo.registry import op


def known(op: Op, value: Any) -> np.ndarray:
    """A value that must be a constant, as NumPy array; refused where it depends on data."""
    if type(value) is not np.ndarray:
        raise UnsupportedError(
            f"Expected sizes that do not depend on data. Received: {op.name}, from {op.scope!r}, with a size computed "
            "while running. Use an operation with a fixed output shape."
        )
    return value


@op("stablehlo.get_dimension_size")
def _get_dimension_size(op: Op, values: list, frame: Frame) -> list:
    return [np.asarray(values[0].shape[op.attr("dimension")], np.int32)]


@op("stablehlo.set_dimension_size")
def _set_dimension_size(op: Op, values: list, frame: Frame) -> list:
    x, size = values
    if int(known(op, size)) != x.shape[op.attr("dimension")]:
        raise UnsupportedError(
            f"Expected the whole of a dimension. Received: {op.name}, from {op.scope!r}, with size {int(size)} of "
            f"{x.shape[op.attr('dimension')]}. Use an operation with a fixed output shape."
        )
    return [x]


@op("stablehlo.dynamic_reshape")
def _dynamic_reshape(op: Op, values: list, frame: Frame) -> list:
    return [lax.reshape(values[0], op.type.shape)]


@op("stablehlo.dynamic_iota")
def _dynamic_iota(op: Op, values: list, frame: Frame) -> list:
    return [lax.broadcasted_iota(op.type.dtype, op.type.shape, op.attr("iota_dimension"))]


@op("stablehlo.dynamic_pad")
def _dynamic_pad(op: Op, values: list, frame: Frame) -> list:
    x, filler, *amounts = values
    low, high, interior = (known(op, amount).tolist() for amount in amounts)
    return [lax.pad(x, filler, list(zip(low, high, interior, strict=True)))]


@op("stablehlo.real_dynamic_slice")
def _real_dynamic_slice(op: Op, values: list, frame: Frame) -> list:
    x, *bounds = values
    start, limit, strides = (known(op, bound).tolist() for bound in bounds)
    return [lax.slice(x, start, limit, strides)]
