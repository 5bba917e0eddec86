"""Collectives between the shards of one replica: a list with one tensor for each shard in, and one out."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from openipu.tensorflow.ipu import reductions
from openipu.tensorflow.ops.shapes import static_shape

__all__ = ["all_gather", "all_reduce", "reduce_scatter"]

_REDUCTIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "ADD": lambda stacked: tf.reduce_sum(stacked, 0),
    "MUL": lambda stacked: tf.reduce_prod(stacked, 0),
    "MIN": lambda stacked: tf.reduce_min(stacked, 0),
    "MAX": lambda stacked: tf.reduce_max(stacked, 0),
    "LOGICAL_AND": lambda stacked: tf.cast(tf.reduce_all(tf.cast(stacked, tf.bool), 0), stacked.dtype),
    "LOGICAL_OR": lambda stacked: tf.cast(tf.reduce_any(tf.cast(stacked, tf.bool), 0), stacked.dtype),
    "SQUARE_ADD": lambda stacked: tf.reduce_sum(tf.square(stacked), 0),
    "MEAN": lambda stacked: tf.reduce_sum(stacked, 0) / tf.cast(tf.shape(stacked)[0], stacked.dtype),
}


def all_gather(input_shards: Sequence[Any], axis: int = 0) -> list[tf.Tensor]:
    """The shards' tensors put together along an axis, on every shard; its gradient is a reduce_scatter."""
    shards = _shards(input_shards)
    rank = shards[0].shape.rank
    if not -rank <= axis < rank:
        raise ValueError(f"axis must be an axis of the tensors, of rank {rank}. Received: axis={axis}.")
    others = {tuple(size for i, size in enumerate(s.shape) if i != axis % rank) for s in shards}
    if len(others) > 1:
        raise ValueError(
            f"Expected tensors to have the same size along all axes but axis {axis}. "
            f"Received: shapes {', '.join(str(s.shape) for s in shards)}."
        )
    return [tf.concat(shards, axis) for _ in shards]


def all_reduce(input_shards: Sequence[Any], op: str) -> list[tf.Tensor]:
    """The reduction of all shards' vectors, on every shard; shorter ones count as padded with zeros."""
    reduction = reductions.parse(op)
    shards = _shards(input_shards)

    @tf.custom_gradient
    def reduced(*shards: tf.Tensor) -> Any:
        lengths = [shard.shape[0] for shard in shards]

        def gradient(*upstream: tf.Tensor) -> list[tf.Tensor]:
            back = all_reduce([tf.identity(g) for g in upstream], op)
            return [value[:length] for value, length in zip(back, lengths, strict=True)]

        return _reduced(shards, reduction), gradient

    return list(reduced(*shards))


def reduce_scatter(input_shards: Sequence[Any], op: str) -> list[tf.Tensor]:
    """The reduction of all shards' vectors, cut into one part for each shard, padded with zeros to equal lengths."""
    reduction = reductions.parse(op)
    shards = _shards(input_shards)
    count = len(shards)
    whole = _reduced(shards, reduction)
    length = -(-static_shape(whole[0])[0] // count)
    parts = []
    for index, value in enumerate(whole):
        padded = tf.pad(value, [[0, length * count - static_shape(value)[0]]])
        parts.append(padded[index * length : (index + 1) * length])
    return parts


def _reduced(shards: Sequence[tf.Tensor], reduction: str) -> list[tf.Tensor]:
    for shard in shards:
        if shard.shape.rank != 1:
            raise ValueError(f"input_shards must hold tensors of rank 1. Received: shape {shard.shape}.")
    lengths = [static_shape(shard, "input_shards")[0] for shard in shards]
    padded = [tf.pad(shard, [[0, max(lengths) - length]]) for shard, length in zip(shards, lengths, strict=True)]
    if reduction == "LOCAL":
        return padded
    total = _REDUCTIONS[reduction](tf.stack(padded))
    return [tf.identity(total) for _ in shards]


def _shards(input_shards: Sequence[Any]) -> list[tf.Tensor]:
    if not isinstance(input_shards, list | tuple) or not input_shards:
        raise ValueError(f"input_shards must be a list with one tensor for each shard. Received: {input_shards!r}.")
    if len({id(shard) for shard in input_shards}) < len(input_shards):
        raise ValueError("input_shards should not contain any duplicate entries.")
    shards = [tf.convert_to_tensor(shard) for shard in input_shards]
    if len({shard.dtype for shard in shards}) > 1:
        names = ", ".join(shard.dtype.name for shard in shards)
        raise ValueError(f"Expected tensors to all be of the same type. Received: {names}.")
    shards = [tf.reshape(shard, [1]) if shard.shape.rank == 0 else shard for shard in shards]
    if len({shard.shape.rank for shard in shards}) > 1:
        ranks = ", ".join(str(shard.shape.rank) for shard in shards)
        raise ValueError(f"Expected tensors to all be of the same rank. Received: ranks {ranks}.")
    return shards
