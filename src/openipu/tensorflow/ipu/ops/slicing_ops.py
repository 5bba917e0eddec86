"""Copies of sequences of rows between tensors, with offsets that may be computed."""

from typing import Any

import tensorflow as tf

from openipu.tensorflow.ops.embedding import lookup
from openipu.tensorflow.ops.shapes import sizes

__all__ = ["sequence_slice", "sequence_slice_pack", "sequence_slice_unpack"]


def sequence_slice(
    dst: Any, src: Any, num_elems: Any, src_offsets: Any, dst_offsets: Any, zero_unused: bool
) -> tf.Tensor:
    """Copies, for every i, `num_elems[i]` rows of `src` from `src_offsets[i]` to `dst_offsets[i]` of `dst`.

    Where sequences overlap in the result the last one counts. Only `src` has a gradient.

    Args:
      dst: the tensor whose rows are replaced.
      src: the tensor rows are taken from; all axes but the first as in `dst`.
      num_elems, src_offsets, dst_offsets: int32 vectors of equal length.
      zero_unused: whether rows that are not written become zero; otherwise they are those of `dst`.
    """
    dst, src = tf.convert_to_tensor(dst), tf.convert_to_tensor(src)
    counts, sources, targets = (tf.convert_to_tensor(v, tf.int32) for v in (num_elems, src_offsets, dst_offsets))
    shapes = {tuple(v.shape) for v in (counts, sources, targets)}
    if len(shapes) > 1 or counts.shape.rank != 1 or counts.shape[0] == 0:
        raise ValueError("num_elems, src_offsets and dst_offsets must have matching, nonzero shapes of rank 1.")
    if dst.shape[1:] != src.shape[1:]:
        raise ValueError(
            f"src and dst inner shapes must match. Received: src of shape {src.shape}, dst of shape {dst.shape}."
        )
    rows = tf.range(sizes(dst)[0])[:, None]
    inside = (rows >= targets) & (rows < targets + counts)
    number = tf.range(counts.shape[0])
    # The last sequence that covers a row, or -1.
    chosen = tf.reduce_max(tf.where(inside, number, -1), axis=1)
    offset = tf.gather(sources - targets, tf.maximum(chosen, 0))
    index = tf.clip_by_value(rows[:, 0] + offset, 0, sizes(src)[0] - 1)
    written = tf.reshape(chosen >= 0, [-1] + [1] * (dst.shape.rank - 1))
    unused = tf.zeros_like(dst) if zero_unused else tf.stop_gradient(dst)
    return tf.where(written, lookup(src, index), unused)


def sequence_slice_unpack(src: Any, num_elems: Any, src_offsets: Any, total_elements: int) -> tf.Tensor:
    """Takes sequences out of `src` and puts them one after another.

    Args:
      src: the tensor rows are taken from.
      num_elems, src_offsets: the length and the first row of every sequence.
      total_elements: rows of the result, with zeros after the last sequence.
    """
    src = tf.convert_to_tensor(src)
    counts = tf.convert_to_tensor(num_elems, tf.int32)
    empty = tf.zeros([total_elements, *src.shape[1:]], src.dtype)
    return sequence_slice(empty, src, counts, src_offsets, tf.cumsum(counts, exclusive=True), zero_unused=True)


def sequence_slice_pack(dst: Any, src: Any, num_elems: Any, dst_offsets: Any, zero_unused: bool) -> tf.Tensor:
    """Puts sequences that stand one after another in `src` to their places in `dst`.

    Args:
      dst: the tensor whose rows are replaced.
      src: the tensor rows are taken from.
      num_elems, dst_offsets: the length and the first row in `dst` of every sequence.
      zero_unused: whether rows that are not written become zero; otherwise they are those of `dst`.
    """
    counts = tf.convert_to_tensor(num_elems, tf.int32)
    return sequence_slice(dst, src, counts, tf.cumsum(counts, exclusive=True), dst_offsets, zero_unused)
