"""Which replica a program runs on."""

import tensorflow as tf

from openipu.tensorflow.ops import collectives

__all__ = ["replication_index"]


def replication_index(name: str | None = None) -> tf.Tensor:
    """The number of the replica, an int32 scalar."""
    with tf.name_scope(name or "replication_index"):
        return collectives.replication_index()
