"""Rows of a table, with a dense gradient."""

from typing import Any

import tensorflow as tf


def lookup(table: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """The rows `ids` of a table: a tensor of the shape `ids.shape + table.shape[1:]`."""

    @tf.custom_gradient
    def rows(table: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            # Sums over micro-batches and replicas need the dense form.
            flat = tf.reshape(upstream, [-1, *table.shape[1:]])
            return tf.tensor_scatter_nd_add(tf.zeros_like(table), tf.reshape(ids, [-1, 1]), flat)

        return tf.gather(table, ids), gradient

    return rows(table)
