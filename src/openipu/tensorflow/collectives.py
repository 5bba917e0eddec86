"""Sums and means over replicas inside functions that are being captured."""

import contextlib
import contextvars
import json
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla

_tracing: contextvars.ContextVar[bool] = contextvars.ContextVar("openipu_tracing", default=False)


def tracing() -> bool:
    """Whether the function being traced reduces over replicas itself."""
    return _tracing.get()


@contextlib.contextmanager
def reducing() -> Iterator[None]:
    """Trace a function whose reductions over replicas are real; elsewhere the compiler reduces, or nothing does."""
    token = _tracing.set(True)
    try:
        yield
    finally:
        _tracing.reset(token)


def cross_replica_sum(value: Any) -> Any:
    """The sum over all replicas, on every replica; its gradient is a sum again."""

    @tf.custom_gradient
    def summed(tensor: tf.Tensor):  # noqa: ANN202
        return emit("cross_replica_sum", tensor), cross_replica_sum

    return tf.nest.map_structure(lambda v: summed(tf.convert_to_tensor(v)), value)


def cross_replica_mean(value: Any) -> Any:
    """The mean over all replicas, on every replica."""
    return tf.nest.map_structure(lambda v: emit("cross_replica_mean", tf.convert_to_tensor(v)), value)


def emit(name: str, tensor: tf.Tensor, **config: Any) -> tf.Tensor:
    """An operation of the IPU with one operand and a result like it; the lowering gives it its meaning."""
    (result,) = xla.custom_call_v2(
        f"openipu.{name}", [tensor], [tf.TensorSpec(tensor.shape, tensor.dtype)], backend_config=json.dumps(config)
    )
    return result
