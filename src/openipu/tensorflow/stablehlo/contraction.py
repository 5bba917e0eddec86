"""Matrix products and convolutions."""

from typing import Any

import jax.numpy as jnp
from jax import lax

from openipu.tensorflow.stablehlo.evaluate import Frame
from openipu.tensorflow.stablehlo.parsed.graph import Op
from openipu.tensorflow.stablehlo.registry import op

_PRECISIONS = {"DEFAULT": lax.Precision.DEFAULT, "HIGH": lax.Precision.HIGH, "HIGHEST": lax.Precision.HIGHEST}


def _precision(op: Op) -> Any:
    names = op.attr("precision_config") or ()
    if all(name == "DEFAULT" for name in names):
        return None
    return tuple(_PRECISIONS[name] for name in names)


@op("stablehlo.dot_general")
def _dot_general(op: Op, values: list, frame: Frame) -> list:
    numbers = op.attr("dot_dimension_numbers")
    contracting = (numbers["lhs_contracting_dimensions"], numbers["rhs_contracting_dimensions"])
    batching = (numbers["lhs_batching_dimensions"], numbers["rhs_batching_dimensions"])
    a, b = values
    numbers = (contracting, batching)
    return [lax.dot_general(a, b, numbers, precision=_precision(op), preferred_element_type=op.type.dtype)]


@op("stablehlo.dot")
def _dot(op: Op, values: list, frame: Frame) -> list:
    a, b = values
    numbers = (((len(a.shape) - 1,), (0,)), ((), ()))
    return [lax.dot_general(a, b, numbers, precision=_precision(op), preferred_element_type=op.type.dtype)]


@op("stablehlo.convolution")
def _convolution(op: Op, values: list, frame: Frame) -> list:
    lhs, rhs = values
    numbers = op.attr("dimension_numbers")
    spatial = numbers["kernel_spatial_dimensions"]
    ones = (1,) * len(spatial)
    reversal = op.attr("window_reversal")
    if reversal is not None and any(reversal):
        rhs = lax.rev(rhs, [axis for axis, turned in zip(spatial, reversal, strict=True) if turned])
    padding = op.attr("padding")
    pairs = [(0, 0)] * len(spatial) if padding is None else [(int(a), int(b)) for a, b in padding.reshape(-1, 2)]
    layout = lax.ConvDimensionNumbers(
        lhs_spec=(
            numbers["input_batch_dimension"],
            numbers["input_feature_dimension"],
            *numbers["input_spatial_dimensions"],
        ),
        rhs_spec=(numbers["kernel_output_feature_dimension"], numbers["kernel_input_feature_dimension"], *spatial),
        out_spec=(
            numbers["output_batch_dimension"],
            numbers["output_feature_dimension"],
            *numbers["output_spatial_dimensions"],
        ),
    )
    return [
        lax.conv_general_dilated(
            lhs,
            rhs,
            op.attr("window_strides", ones),
            pairs,
            lhs_dilation=op.attr("lhs_dilation", ones),
            rhs_dilation=op.attr("rhs_dilation", ones),
            dimension_numbers=layout,
            feature_group_count=op.attr("feature_group_count"),
            batch_group_count=op.attr("batch_group_count"),
            precision=_precision(op),
            preferred_element_type=op.type.dtype,
        )
    ]


@op("stablehlo.einsum", "stablehlo.unary_einsum")
def _einsum(op: Op, values: list, frame: Frame) -> list:
    return [jnp.einsum(op.attr("einsum_config"), *values, preferred_element_type=op.type.dtype)]
