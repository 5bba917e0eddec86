"""Operations that make, move or re-arrange values without computing on them."""

import numpy as np
from jax import lax

from openipu.tensorflow.stablehlo.evaluate import Frame
from openipu.tensorflow.stablehlo.parsed.graph import Op
from openipu.tensorflow.stablehlo.registry import op


@op("stablehlo.constant")
def _constant(op: Op, values: list, frame: Frame) -> list:
    value = op.attr("value")
    if value.size > 1 and not any(value.strides):
        # One value repeated is written as such, so that the program does not carry the whole array.
        return [lax.full(value.shape, value.reshape(-1)[0], value.dtype)]
    return [np.ascontiguousarray(value).reshape(value.shape)]


@op("stablehlo.iota")
def _iota(op: Op, values: list, frame: Frame) -> list:
    kind = op.type
    if kind.dtype.kind == "c":
        real = lax.broadcasted_iota(np.dtype(f"float{4 * kind.dtype.itemsize}"), kind.shape, op.attr("iota_dimension"))
        return [lax.convert_element_type(real, kind.dtype)]
    return [lax.broadcasted_iota(kind.dtype, kind.shape, op.attr("iota_dimension"))]


@op("stablehlo.reshape")
def _reshape(op: Op, values: list, frame: Frame) -> list:
    (x,) = values
    # TensorFlow wraps every argument and result in a reshape to its own shape.
    return [x if x.shape == op.type.shape else lax.reshape(x, op.type.shape)]


@op("stablehlo.transpose")
def _transpose(op: Op, values: list, frame: Frame) -> list:
    return [lax.transpose(values[0], op.attr("permutation"))]


@op("stablehlo.broadcast_in_dim", "stablehlo.dynamic_broadcast_in_dim")
def _broadcast_in_dim(op: Op, values: list, frame: Frame) -> list:
    return [lax.broadcast_in_dim(values[0], op.type.shape, op.attr("broadcast_dimensions"))]


@op("stablehlo.broadcast")
def _broadcast(op: Op, values: list, frame: Frame) -> list:
    return [lax.broadcast(values[0], op.attr("broadcast_sizes"))]


@op("stablehlo.concatenate")
def _concatenate(op: Op, values: list, frame: Frame) -> list:
    return [lax.concatenate(values, op.attr("dimension"))]


@op("stablehlo.slice")
def _slice(op: Op, values: list, frame: Frame) -> list:
    return [lax.slice(values[0], op.attr("start_indices"), op.attr("limit_indices"), op.attr("strides"))]


@op("stablehlo.pad")
def _pad(op: Op, values: list, frame: Frame) -> list:
    x, filler = values
    amounts = zip(op.attr("edge_padding_low"), op.attr("edge_padding_high"), op.attr("interior_padding"), strict=True)
    return [lax.pad(x, filler, list(amounts))]


@op("stablehlo.reverse")
def _reverse(op: Op, values: list, frame: Frame) -> list:
    return [lax.rev(values[0], op.attr("dimensions"))]


@op("stablehlo.tuple")
def _tuple(op: Op, values: list, frame: Frame) -> list:
    return [tuple(values)]


@op("stablehlo.get_tuple_element")
def _get_tuple_element(op: Op, values: list, frame: Frame) -> list:
    return [values[0][op.attr("index")]]


@op("mhlo.copy")
def _copy(op: Op, values: list, frame: Frame) -> list:
    # A copy between layouts: the values are the same.
    return list(values)
