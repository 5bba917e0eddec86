"""String attributes on TensorFlow operations, which reach StableHLO as `mhlo.frontend_attributes`."""

import contextlib
from collections.abc import Iterator, Mapping

import tensorflow as tf

from openipu.tensorflow.boundary import FrontendAttributes, attributes_to_come, set_attribute
from openipu.tensorflow.capture import placement

# TensorFlow's own name: its bridge to XLA copies this attribute to every instruction made for the operation.
FRONTEND_ATTRIBUTES_NAME = "_XlaFrontendAttributes"


def read(op: tf.Operation) -> dict[str, str]:
    """The string attributes of an operation."""
    try:
        text = op.get_attr(FRONTEND_ATTRIBUTES_NAME)
    except ValueError:
        return {}
    return dict(FrontendAttributes.FromString(text).map)


def write(op: tf.Operation, attributes: Mapping[str, str]) -> None:
    """Replaces the string attributes of an operation."""
    set_attribute(op, FRONTEND_ATTRIBUTES_NAME, _encode(attributes))


@contextlib.contextmanager
def inherited() -> Iterator[None]:
    """Gives operations of the current graph the attributes of the scopes around it.

    A function's graph starts without them, even if the function is traced inside a scope.
    """
    graph = tf.compat.v1.get_default_graph()
    outside = attributes_to_come(graph).get(FRONTEND_ATTRIBUTES_NAME)
    _stamp(graph, _encode(placement.current_attributes()))
    try:
        yield
    finally:
        _stamp(graph, outside)


@contextlib.contextmanager
def scope(name: str, value: str, restore_to: str | None = None) -> Iterator[None]:
    """Gives operations created inside the attribute `name`; afterwards it has its old value, or `restore_to`."""
    graph = tf.compat.v1.get_default_graph()
    before = placement.current_attributes()
    after = before if restore_to is None else {**before, name: restore_to}
    stamped_before = attributes_to_come(graph).get(FRONTEND_ATTRIBUTES_NAME)
    placement.set_attributes({**before, name: value})
    _stamp(graph, _encode(placement.current_attributes()))
    try:
        yield
    finally:
        placement.set_attributes(after)
        _stamp(graph, stamped_before if restore_to is None else _encode(after))


def _encode(attributes: Mapping[str, str]) -> tf.compat.v1.AttrValue:
    message = FrontendAttributes(map=attributes)
    return tf.compat.v1.AttrValue(s=message.SerializeToString(deterministic=True))


def _stamp(graph: tf.Graph, value: tf.compat.v1.AttrValue | None) -> None:
    # The graph offers this only as a context manager, and `restore_to` outlives its context.
    if value is None:
        attributes_to_come(graph).pop(FRONTEND_ATTRIBUTES_NAME, None)
    else:
        attributes_to_come(graph)[FRONTEND_ATTRIBUTES_NAME] = value
