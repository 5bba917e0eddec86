"""Reading and writing at computed positions: gather, scatter and dynamic slices."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax

from openipu.tensorflow.exceptions import UnsupportedError
from openipu.tensorflow.stablehlo.blocks.recognise import combiner, inline, only_op
from openipu.tensorflow.stablehlo.evaluate import Frame
from openipu.tensorflow.stablehlo.parsed.graph import Op
from openipu.tensorflow.stablehlo.registry import op

_SCATTERS: dict[str, Callable[..., Any]] = {
    "add": lax.scatter_add,
    "mul": lax.scatter_mul,
    "max": lax.scatter_max,
    "min": lax.scatter_min,
    "replace": lax.scatter,
    "sub": lax.scatter_sub,
}


def _indices(values: Any, vector_dim: int) -> Any:
    """Indices with the index vector last, where JAX wants it."""
    rank = len(values.shape)
    if vector_dim == rank:
        return lax.expand_dims(values, (rank,))
    if vector_dim == rank - 1:
        return values
    order = [axis for axis in range(rank) if axis != vector_dim]
    return lax.transpose(values, (*order, vector_dim))


@op("stablehlo.gather")
def _gather(op: Op, values: list, frame: Frame) -> list:
    operand, indices = values
    numbers = op.attr("dimension_numbers")
    dimensions = lax.GatherDimensionNumbers(
        offset_dims=numbers["offset_dims"],
        collapsed_slice_dims=numbers["collapsed_slice_dims"],
        start_index_map=numbers["start_index_map"],
        operand_batching_dims=numbers["operand_batching_dims"],
        start_indices_batching_dims=numbers["start_indices_batching_dims"],
    )
    return [
        lax.gather(
            operand,
            _indices(indices, numbers["index_vector_dim"]),
            dimensions,
            op.attr("slice_sizes"),
            indices_are_sorted=bool(op.attr("indices_are_sorted", False)),
            # What XLA does by itself with positions outside of the operand.
            mode=lax.GatherScatterMode.CLIP,
        )
    ]


@op("stablehlo.scatter")
def _scatter(op: Op, values: list, frame: Frame) -> list:
    if len(values) != 3:
        raise UnsupportedError(
            f"Expected one operand to scatter into. Received: {len(values) // 2}, from {op.scope!r}."
        )
    operand, indices, updates = values
    numbers = op.attr("scatter_dimension_numbers")
    dimensions = lax.ScatterDimensionNumbers(
        update_window_dims=numbers["update_window_dims"],
        inserted_window_dims=numbers["inserted_window_dims"],
        scatter_dims_to_operand_dims=numbers["scattered_dims_to_operand_dims"],
        operand_batching_dims=numbers["input_batching_dims"],
        scatter_indices_batching_dims=numbers["scatter_indices_batching_dims"],
    )
    options: dict[str, Any] = {
        "indices_are_sorted": bool(op.attr("indices_are_sorted", False)),
        "unique_indices": bool(op.attr("unique_indices", False)),
        # Updates outside of the operand are left out, as in XLA.
        "mode": lax.GatherScatterMode.FILL_OR_DROP,
    }
    indices = _indices(indices, numbers["index_vector_dim"])
    name = _update(op, frame)
    if name in _SCATTERS and (name == "replace" or operand.dtype != np.bool_):
        return [_SCATTERS[name](operand, indices, updates, dimensions, **options)]
    region = frame.region(op.blocks[0])
    scalar = jax.ShapeDtypeStruct((), operand.dtype)
    update = jax.make_jaxpr(lambda a, b: region(a, b)[0])(scalar, scalar)
    return [
        lax.scatter_p.bind(
            operand,
            indices,
            updates,
            update_jaxpr=update.jaxpr,
            update_consts=tuple(update.consts),
            dimension_numbers=dimensions,
            **options,
        )
    ]


def _update(op: Op, frame: Frame) -> str | None:
    block = inline(op.blocks[0], frame)
    if not block.ops and block.returns == block.args[1:]:
        return "replace"
    found = only_op(block, frame)
    if found is not None and found[0].name == "stablehlo.subtract" and found[0].operands == block.args:
        return "sub"
    return combiner(block, frame)


@op("stablehlo.dynamic_slice")
def _dynamic_slice(op: Op, values: list, frame: Frame) -> list:
    operand, *starts = values
    return [lax.dynamic_slice(operand, starts, op.attr("slice_sizes"), allow_negative_indices=False)]


@op("stablehlo.dynamic_update_slice")
def _dynamic_update_slice(op: Op, values: list, frame: Frame) -> list:
    operand, update, *starts = values
    return [lax.dynamic_update_slice(operand, update, starts, allow_negative_indices=False)]


@op("stablehlo.torch_index_select")
def _index_select(op: Op, values: list, frame: Frame) -> list:
    operand, indices = values
    dim, batch_dims = op.attr("dim"), op.attr("batch_dims")

    def take(x: jax.Array, at: jax.Array) -> jax.Array:
        return jax.numpy.take(x, at, axis=dim - batch_dims, mode="clip")

    for _ in range(batch_dims):
        take = jax.vmap(take)
    return [take(operand, indices)]
