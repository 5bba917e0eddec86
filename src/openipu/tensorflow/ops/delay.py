"""Values of earlier iterations: a queue that a program holds while it runs."""

import itertools
from typing import Any

import jax.numpy as jnp
import tensorflow as tf

from openipu.tensorflow.ops.emit import emit
from openipu.tensorflow.stablehlo import holding_call

_numbers = itertools.count()


def delayed(tensor: tf.Tensor, depth: int) -> tf.Tensor:
    """What this operation was given `depth` times ago; zeros before that."""
    name = f"delay_{next(_numbers)}"
    zeros = [[depth, *tensor.shape.as_list()], tensor.dtype.name]
    return emit("delay", [tensor], tensor.shape, tensor.dtype, holds=name, zeros=zeros)


@holding_call("openipu.delay")
def _delay(operands: list, config: dict[str, Any], kinds: tuple, held: dict[str, Any]) -> list:
    queue = held[config["holds"]]
    held[config["holds"]] = jnp.concatenate([queue[1:], operands[0][None]])
    return [queue[0]]
