"""Scopes that say where operations run, and how: device, shard, rounding and precision."""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from openipu.tensorflow.boundary import attribute_scope, in_xla_context
from openipu.tensorflow.capture import graph_attributes, outside, placement
from openipu.tensorflow.capture.graph_attributes import FRONTEND_ATTRIBUTES_NAME
from openipu.tensorflow.exceptions import UnsupportedError
from openipu.tensorflow.ops.emit import capturing

__all__ = [
    "FRONTEND_ATTRIBUTES_NAME",
    "OUTSIDE_COMPILATION_NAME",
    "frontend_attribute",
    "ipu_jit_scope",
    "ipu_scope",
    "ipu_shard",
    "outside_compilation_scope",
    "partials_type",
    "stochastic_rounding",
]

OUTSIDE_COMPILATION_NAME = "_xla_outside_compilation"

STOCHASTIC_ROUNDING_ATTRIBUTE = "openipu.stochastic_rounding"
PARTIALS_TYPE_ATTRIBUTE = "openipu.partials_type"


@contextlib.contextmanager
def ipu_jit_scope(ipu_scope: int) -> Iterator[None]:
    """Marks operations as belonging to the compiled program number `ipu_scope`."""
    value = tf.compat.v1.AttrValue(s=f"jit_scope_ipu_{ipu_scope}".encode())
    with attribute_scope(tf.compat.v1.get_default_graph(), {"_XlaScope": value}):
        yield


@contextlib.contextmanager
def ipu_scope(device: str) -> Iterator[None]:
    """Places operations on an IPU device and makes new variables resource variables.

    Args:
      device: such as `/device:IPU:0`.
    """
    # Stock TensorFlow knows no device type IPU, so `tf.device` would refuse the name when the program runs.
    ordinal = placement.parse_ordinal(device)
    if not tf.inside_function() and not tf.executing_eagerly():
        # Its sessions must not compute on the host what is made here.
        from openipu.tensorflow.v1 import sessions

        sessions.of_graph(tf.compat.v1.get_default_graph())
    with placement.on_device(ordinal), _resource_variables(), ipu_jit_scope(0):
        yield


@contextlib.contextmanager
def ipu_shard(index: int | Iterable[int]) -> Iterator[None]:
    """Assigns operations to a shard of the model.

    Args:
      index: one shard index, or several for operations that span shards.
    """
    shards = (index,) if isinstance(index, int) else _as_tuple(index)
    if not shards or any(type(shard) is not int or shard < 0 for shard in shards):
        raise ValueError(
            "index must be a shard index, 0 or higher, or a list of them with at least one element. "
            f"Received: index={index!r}."
        )
    with frontend_attribute(placement.SHARD_ATTRIBUTE, placement.format_shards(shards)):
        yield


@contextlib.contextmanager
def frontend_attribute(attribute_name: str, attribute_value: str, restore_to: str | None = None) -> Iterator[None]:
    """Gives operations a string attribute.

    Args:
      attribute_name: its name.
      attribute_value: its value inside the scope.
      restore_to: its value after the scope; by default the one it had before.
    """
    for name, text in (("attribute_name", attribute_name), ("attribute_value", attribute_value)):
        if not isinstance(text, str):
            raise TypeError(f"{name} must be a string. Received: {name}={text!r}.")
    with graph_attributes.scope(attribute_name, attribute_value, restore_to):
        yield


@contextlib.contextmanager
def stochastic_rounding(override: bool) -> Iterator[None]:
    """Turns stochastic rounding on or off for the operations inside, whatever the config says."""
    if not isinstance(override, bool):
        raise TypeError(f"override must be True or False. Received: override={override!r}.")
    with frontend_attribute(STOCHASTIC_ROUNDING_ATTRIBUTE, "on" if override else "off"):
        yield


@contextlib.contextmanager
def partials_type(override_type: Any) -> Iterator[None]:
    """Sets the type of partial sums of the matrix products and convolutions inside: float16 or float32."""
    try:
        dtype = tf.as_dtype(override_type)
    except TypeError:
        dtype = None
    if dtype not in (tf.float16, tf.float32):
        raise ValueError(f"Only support float16, float32, provided {override_type}")
    with frontend_attribute(PARTIALS_TYPE_ATTRIBUTE, dtype.name):
        yield


@contextlib.contextmanager
def outside_compilation_scope(name: str = "outside") -> Iterator[None]:
    """Has the host run the operations inside, in the middle of a program for the IPU.

    Values that come out must have static shapes; gradients do not go through.

    Args:
      name: for messages.
    """
    graph = tf.compat.v1.get_default_graph()
    if not capturing() and not in_xla_context(graph):
        raise ValueError("outside_compilation_scope is only allowed in XLA context")
    if not capturing():
        raise UnsupportedError(
            f"outside_compilation_scope(name={name!r}) works in programs for the IPU only. Received: a function that "
            "TensorFlow compiles for the host. Call it in strategy.run."
        )
    with outside.scope(name):
        yield


@contextlib.contextmanager
def _resource_variables() -> Iterator[None]:
    scope = tf.compat.v1.get_variable_scope()
    before = scope.use_resource
    scope.set_use_resource(True)
    try:
        yield
    finally:
        # Eager mode has resource variables only, and refuses to hear otherwise.
        if not tf.executing_eagerly():
            scope.set_use_resource(before)


def _as_tuple(index: Any) -> tuple[Any, ...]:
    return tuple(index) if isinstance(index, Iterable) else (index,)
