"""The operations of feeds: how a traced function takes and gives elements, and what that means when it is lowered.

Every queue has a cursor, a variable of TensorFlow: what reads and advances it is kept and ordered by TensorFlow itself,
through loops and branches. Which element an operation means is the cursor it is given, so the operations have no order
of their own.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import jax
import numpy as np
import tensorflow as tf
from jax import lax

from openipu.program import replica
from openipu.tensorflow.boundary import eager_mode
from openipu.tensorflow.capture.variables import remember
from openipu.tensorflow.ops.emit import emit
from openipu.tensorflow.stablehlo import custom_call, holding_call


@attrs.frozen(eq=False)
class Live:
    """A feed that calls the host whenever the program gets there, because how often is not known before.

    Attributes:
      call: takes the cursor, the replica and the values given; returns the values taken.
    """

    call: Callable[..., Sequence[np.ndarray]]


# The feeds of the program that is being lowered: arrays [step, ...] that hold the elements, or live ones.
Sources = Mapping[str, Sequence[jax.Array] | Live]
_sources: contextvars.ContextVar[Sources] = contextvars.ContextVar("openipu_feeds")


@contextlib.contextmanager
def lowering(sources: Sources) -> Iterator[None]:
    """Give the feeds of a program their meaning while it is lowered."""
    token = _sources.set(sources)
    try:
        yield
    finally:
        _sources.reset(token)


def cursor(name: str) -> tf.Variable:
    """The cursor of a new queue."""
    # Outside of all graphs, also in programs of TensorFlow 1.
    with tf.init_scope(), eager_mode():
        variable = tf.Variable(tf.constant(0), trainable=False, name=f"{name}_cursor", dtype=tf.int32)
    remember(variable)
    return variable


def take(name: str, position: tf.Variable, specs: Sequence[tf.TensorSpec]) -> list[tf.Tensor]:
    """The next element of an infeed, flat, in the function that is being traced."""
    now = position.read_value()
    parts = [emit("infeed", [now], s.shape, s.dtype, feed=name, part=i) for i, s in enumerate(specs)]
    # An operation, so that elements are counted although none of their parts may be used.
    position.assign(emit("infeed_advance", [now], [], tf.int32, feed=name))
    return parts


def give(name: str, position: tf.Variable, values: Sequence[tf.Tensor]) -> tf.Operation:
    """Give flat values to an outfeed, in the function that is being traced."""
    now = position.read_value()
    done = emit("outfeed", [now, *values], [], tf.int32, feed=name, holds=name)
    return position.assign(done, read_value=False)


@custom_call("openipu.infeed")
def _infeed(operands: list, config: dict[str, Any], kinds: tuple) -> list:
    (now,) = operands
    source = _sources.get()[config["feed"]]
    if isinstance(source, Live):
        call = source.call

        def part(now: jax.Array, index: jax.Array) -> np.ndarray:
            return call(int(now), int(index))[config["part"]]

        # The cursor says which element is meant, so the call may be repeated, moved or left out.
        return [jax.pure_callback(part, kinds[0], now, replica.local_index(), vmap_method="sequential")]
    return [lax.dynamic_index_in_dim(source[config["part"]], now, keepdims=False)]


@custom_call("openipu.infeed_advance")
def _infeed_advance(operands: list, config: dict[str, Any], kinds: tuple) -> list:
    return [operands[0] + np.int32(1)]


@holding_call("openipu.outfeed")
def _outfeed(operands: list, config: dict[str, Any], kinds: tuple, held: dict[str, Any]) -> list:
    now, *values = operands
    name = config["feed"]
    source = _sources.get()[name]
    if isinstance(source, Live):
        call = source.call

        def put(now: jax.Array, index: jax.Array, *values: jax.Array) -> np.ndarray:
            call(int(now), int(index), *(np.asarray(v) for v in values))
            return np.asarray(int(now) + 1, np.int32)

        # The next cursor comes from the call, so that it is not left out.
        return [jax.pure_callback(put, kinds[0], now, replica.local_index(), *values, vmap_method="sequential")]
    # A buffer of one place keeps the last value.
    held[name] = [
        lax.dynamic_update_index_in_dim(buffer, value, 0 if len(buffer) == 1 else now, 0)
        for buffer, value in zip(held[name], values, strict=True)
    ]
    return [now + np.int32(1)]
