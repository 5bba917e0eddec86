"""Tables of embeddings that live on the host: looked up by programs, updated by the gradients of the lookups."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from openipu.tensorflow.ops.collectives import cross_replica_sum
from openipu.tensorflow.ops.emit import capturing

_STRATEGIES = ("TOKEN", "ENCODING")


class HostEmbeddingOptimizerSpec:
    """Gradient descent on the rows that were looked up, at once.

    Args:
      learning_rate: a number; with 0 the table stays as it is.
      optimizer_name: accepted for compatibility.
    """

    def __init__(self, learning_rate: float, optimizer_name: str | None = None) -> None:
        self._learning_rate = learning_rate

    def get_learning_rate(self) -> float:
        """The learning rate."""
        return self._learning_rate

    def create_slot_variables(self, embedding_tensor: tf.Variable, name: str) -> list[tf.Variable]:
        """The variables that updates need besides the table."""
        return []

    def create_lookup_instruction(
        self,
        embedding_tensor: tf.Variable,
        indices: tf.Tensor,
        slot_vars: Sequence[tf.Variable],
        partition_strategy: str,
        name: str,
    ) -> tf.Tensor:
        """The rows of the table."""
        with tf.name_scope(name):
            return tf.gather(embedding_tensor, indices)

    def create_register_instruction(
        self, embedding_tensor: tf.Variable, slot_vars: Sequence[tf.Variable], name: str
    ) -> tf.Operation:
        """What is done before executions: nothing."""
        return tf.no_op(name)

    create_deregister_instruction = create_register_instruction

    def update(self, table: tf.Variable, slots: Sequence[tf.Variable], gradient: tf.Tensor) -> None:
        """Give the table the gradient of one lookup, which is as large as the table."""
        table.assign_sub(tf.cast(self._learning_rate, table.dtype) * gradient)


class HostEmbeddingSGDGAOptimizerSpec(HostEmbeddingOptimizerSpec):
    """Gradient descent with the sum of several gradients.

    Args:
      learning_rate: a number.
      accumulation_factor: gradients that make one update.
    """

    def __init__(self, learning_rate: float, accumulation_factor: int) -> None:
        if not isinstance(accumulation_factor, int) or accumulation_factor < 1:
            raise ValueError(
                "accumulation_factor must be a positive integer. "
                f"Received: accumulation_factor={accumulation_factor!r}."
            )
        super().__init__(learning_rate)
        self._accumulation_factor = accumulation_factor

    def get_accumulation_factor(self) -> int:
        """Gradients that make one update."""
        return self._accumulation_factor

    def create_slot_variables(self, embedding_tensor: tf.Variable, name: str) -> list[tf.Variable]:
        """The sum of gradients, and how many are in it."""
        zeros = tf.zeros(embedding_tensor.shape, embedding_tensor.dtype)
        return [
            tf.Variable(zeros, trainable=False, name=f"{name}/accumulator"),
            tf.Variable(tf.constant(0), trainable=False, name=f"{name}/accumulated"),
        ]

    def update(self, table: tf.Variable, slots: Sequence[tf.Variable], gradient: tf.Tensor) -> None:
        """Add the gradient; when there are enough, apply the sum."""
        total, seen = slots
        total.assign_add(gradient)

        def apply() -> None:
            super(HostEmbeddingSGDGAOptimizerSpec, self).update(table, (), total.read_value())
            total.assign(tf.zeros_like(total))
            seen.assign(0)

        def wait() -> None:
            seen.assign_add(1)

        tf.cond(tf.equal(seen + 1, self._accumulation_factor), apply, wait)


class HostEmbedding:
    """A table on the host.

    The gradient of a lookup updates the table, if there is an `optimizer_spec`: no optimizer of the program needs to
    know the table. For that the gradient has to be asked for, which `minimize` does for all trainable variables of a
    graph; with a gradient tape, ask for `trainable_variables` as well.

    Args:
      name: of the table.
      embedding_tensor: a variable [rows, size].
      partition_strategy: how an IPU would spread the table, `TOKEN` or `ENCODING`; changes nothing here.
      optimizer_spec: how the table is updated; None for a table that stays as it is.
    """

    def __init__(
        self,
        name: str,
        embedding_tensor: tf.Variable,
        partition_strategy: str = "TOKEN",
        optimizer_spec: HostEmbeddingOptimizerSpec | None = None,
    ) -> None:
        if partition_strategy not in _STRATEGIES:
            raise ValueError(
                f"partition_strategy must be one of {', '.join(_STRATEGIES)}. "
                f"Received: partition_strategy={partition_strategy!r}."
            )
        if optimizer_spec is not None and not isinstance(optimizer_spec, HostEmbeddingOptimizerSpec):
            raise TypeError(f"optimizer_spec must be a HostEmbeddingOptimizerSpec. Received: {optimizer_spec!r}.")
        self._name = name
        self._table = embedding_tensor
        self._strategy = partition_strategy
        self._spec = optimizer_spec or HostEmbeddingOptimizerSpec(0.0)
        self._slots: list[tf.Variable] = []
        # Its gradient is zero. Lookups depend on it, so that their gradients are computed.
        self._anchor: tf.Variable | None = None
        if self._spec.get_learning_rate() != 0:
            self._slots = self._spec.create_slot_variables(embedding_tensor, name)
            self._anchor = tf.Variable(tf.constant(0.0), name=f"{name}/anchor")

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        """What to ask a gradient tape for, so that the table is updated."""
        return [] if self._anchor is None else [self._anchor]

    def get_embedding_tensor(self) -> tf.Variable:
        """The table."""
        return self._table

    @contextlib.contextmanager
    def register(self, session: Any = None) -> Iterator["HostEmbedding"]:
        """The table is ready for the executions inside.

        Args:
          session: that runs them; not needed in eager mode.
        """
        if session is None and not tf.executing_eagerly():
            raise ValueError("register needs the session that runs the program, except in eager mode.")
        yield self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refused, as in the original."""
        raise NotImplementedError("A HostEmbedding is not called. Use `lookup` in the program, inside `register`.")

    def lookup(self, indices: Any, clip_indices: bool = True) -> tf.Tensor:
        """Rows of the table, in a program for the IPU.

        Args:
          indices: row numbers.
          clip_indices: take the first or last row for numbers that are too small or too large.
        """
        indices = tf.convert_to_tensor(indices)
        if clip_indices:
            rows: Any = self._table.shape[0]
            indices = tf.clip_by_value(indices, 0, rows - 1)
        looked_up = self._spec.create_lookup_instruction(
            self._table, indices, self._slots, self._strategy, f"{self._name}_lookup"
        )
        found = tf.stop_gradient(looked_up)
        if self._anchor is None:
            return found

        @tf.custom_gradient
        def anchored(anchor: tf.Tensor, rows: tf.Tensor) -> Any:
            def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
                self._update(indices, upstream)
                return tf.zeros_like(anchor), None

            return tf.identity(rows), gradient

        return anchored(self._anchor.read_value(), found)

    def _update(self, indices: tf.Tensor, upstream: tf.Tensor) -> None:
        flat = tf.reshape(upstream, [-1, *self._table.shape[1:]])
        zeros = tf.zeros(self._table.shape, self._table.dtype)
        total = tf.tensor_scatter_nd_add(zeros, tf.reshape(indices, [-1, 1]), tf.cast(flat, self._table.dtype))
        # There is one table: all replicas update it.
        self._spec.update(self._table, self._slots, cross_replica_sum(total) if capturing() else total)


def create_host_embedding(
    name: str,
    shape: Sequence[int],
    dtype: Any,
    partition_strategy: str = "TOKEN",
    optimizer_spec: HostEmbeddingOptimizerSpec | None = None,
    initializer: Any = None,
) -> HostEmbedding:
    """A table on the host.

    Args:
      name: of the table.
      shape: [rows, size].
      dtype: of the table.
      partition_strategy, optimizer_spec: as of `HostEmbedding`.
      initializer: of the table; zeros by default.
    """
    make = initializer if initializer is not None else tf.zeros_initializer()
    value: Any = make(shape, dtype) if callable(make) else tf.cast(tf.broadcast_to(make, shape), dtype)
    table = tf.Variable(value, trainable=False, name=name)
    return HostEmbedding(name, table, partition_strategy, optimizer_spec)
