"""Reductions over sliding windows, and the gradient of max-pooling."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax

from openipu import jax_boundary
from openipu.tensorflow.stablehlo.blocks.recognise import combiner, comparison, is_identity
from openipu.tensorflow.stablehlo.evaluate import Frame
from openipu.tensorflow.stablehlo.parsed.graph import Op
from openipu.tensorflow.stablehlo.reduction import COMBINERS, pairwise
from openipu.tensorflow.stablehlo.registry import op

_CUMULATIVE: dict[str, Callable[..., Any]] = {
    "add": lax.cumsum,
    "mul": lax.cumprod,
    "max": lax.cummax,
    "min": lax.cummin,
}


def _padding(op: Op, rank: int) -> tuple[tuple[int, int], ...]:
    padding = op.attr("padding")
    if padding is None:
        return ((0, 0),) * rank
    return tuple((int(low), int(high)) for low, high in np.asarray(padding).reshape(rank, 2))


@op("stablehlo.reduce_window")
def _reduce_window(op: Op, values: list, frame: Frame) -> list:
    half = len(values) // 2
    operands, inits = values[:half], values[half:]
    window = op.attr("window_dimensions")
    ones = (1,) * len(window)
    strides = op.attr("window_strides", ones)
    dilations = {
        "base_dilation": op.attr("base_dilations", ones),
        "window_dilation": op.attr("window_dilations", ones),
    }
    padding = _padding(op, len(window))
    name = combiner(op.blocks[0], frame) if half == 1 else None
    if name is not None and is_identity(name, inits[0]):
        cumulative = _cumulative_axis(operands[0].shape, window, strides, padding, dilations)
        if name in _CUMULATIVE and cumulative is not None:
            axis, reverse = cumulative
            return [_CUMULATIVE[name](operands[0], axis=axis, reverse=reverse)]
        # With the identity as a plain number, JAX picks its named sum and max windows.
        init = inits[0][()]
        return [lax.reduce_window(operands[0], init, COMBINERS[name], window, strides, padding, **dilations)]
    results = lax.reduce_window(
        tuple(operands), tuple(inits), pairwise(op, frame), window, strides, padding, **dilations
    )
    return list(results)


def _cumulative_axis(
    shape: tuple[int, ...],
    window: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    dilations: dict[str, tuple[int, ...]],
) -> tuple[int, bool] | None:
    """The axis along which a window over everything before (or, reversed, after) makes a cumulative sum."""
    axes = [i for i, size in enumerate(window) if size != 1]
    if len(axes) != 1 or any(d != 1 for d in (*strides, *dilations["base_dilation"], *dilations["window_dilation"])):
        return None
    (axis,) = axes
    size = shape[axis]
    if window[axis] != size or any(padding[i] != (0, 0) for i in range(len(shape)) if i != axis):
        return None
    if padding[axis] == (size - 1, 0):
        return axis, False
    return (axis, True) if padding[axis] == (0, size - 1) else None


@op("stablehlo.select_and_scatter")
def _select_and_scatter(op: Op, values: list, frame: Frame) -> list:
    operand, source, init = values
    rank = len(operand.shape)
    ones = (1,) * rank
    geometry: dict[str, Any] = {
        "window_dimensions": op.attr("window_dimensions", ones),
        "window_strides": op.attr("window_strides", ones),
        "padding": _padding(op, rank),
    }
    select = comparison(op.blocks[0], frame)
    scatter = combiner(op.blocks[1], frame)
    if select is not None and select[0] in ("GE", "LE") and scatter == "add" and is_identity("add", init):
        primitive = lax.ge_p if select[0] == "GE" else lax.le_p
        return [lax.select_and_scatter_add_p.bind(source, operand, select_prim=primitive, **geometry)]
    choose, join = frame.region(op.blocks[0]), frame.region(op.blocks[1])
    return [
        jax_boundary.select_and_scatter(
            operand,
            lambda a, b: choose(a, b)[0],
            source=source,
            init_value=init,
            scatter=lambda a, b: join(a, b)[0],
            **geometry,
        )
    ]
