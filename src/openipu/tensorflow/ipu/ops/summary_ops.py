"""Summaries of compilations in graphs of TensorFlow 1."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

__all__ = ["ipu_compile_summary"]


def ipu_compile_summary(name: str, op_list: Any, collections: Sequence[str] | None = None) -> tf.Tensor:
    """A summary of what was compiled for some operations; there is nothing in it, as without profiling in the original.

    Args:
      name: of the summary.
      op_list: operations or tensors that come first.
      collections: where the summary is kept; by default where `tf.compat.v1.summary.merge_all` finds it.
    """
    operations = op_list if isinstance(op_list, list | tuple) else [op_list]
    with tf.name_scope(name), tf.control_dependencies([tf.nest.flatten(o)[0] for o in operations]):
        summary = tf.constant(b"", name="summary")
    for collection in collections or [tf.compat.v1.GraphKeys.SUMMARIES]:
        tf.compat.v1.add_to_collection(collection, summary)
    return summary
