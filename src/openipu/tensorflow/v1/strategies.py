"""`strategy.run` in a graph of TensorFlow 1: the function becomes one program, which the graph's sessions run."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from openipu.tensorflow.capture import placement
from openipu.tensorflow.executor import run as runs
from openipu.tensorflow.v1 import compiler, sessions

if TYPE_CHECKING:
    from openipu.tensorflow.executor.strategy import OnIPUs


def run_in_graph(strategy: "OnIPUs", fn: Callable, args: tuple, kwargs: dict) -> Any:
    """What `fn` returns, as tensors of the graph.

    Args:
      strategy: where it runs.
      fn: builds operations, as what is given to `ipu_compiler.compile` does; it may call that itself.
      args, kwargs: its arguments.
    """
    graph = tf.compat.v1.get_default_graph()
    flat = tf.nest.flatten((args, kwargs), expand_composites=True)
    tensors = [leaf for leaf in flat if tf.is_tensor(leaf) and not isinstance(leaf, tf.Variable)]
    returned: list[Any] = []

    def computation(*inputs: tf.Tensor) -> Any:
        given = iter(inputs)
        leaves = [next(given) if any(leaf is t for t in tensors) else leaf for leaf in flat]
        own_args, own_kwargs = tf.nest.pack_sequence_as((args, kwargs), leaves, expand_composites=True)
        returned[:] = [fn(*own_args, **own_kwargs)]
        return returned[0]

    computation.__name__ = getattr(fn, "__name__", "function")
    # Its sessions must not compute on the host what is made here.
    sessions.of_graph(graph)
    with placement.on_device(strategy.device_ordinal), strategy.replica_context():
        outputs = compiler.compile(computation, tensors)
    if isinstance(outputs, tf.Operation):
        return outputs
    made = iter(outputs)
    leaves = tf.nest.flatten(returned[0])
    return tf.nest.pack_sequence_as(returned[0], [next(made) if tf.is_tensor(leaf) else None for leaf in leaves])


runs.run_in_graphs(run_in_graph)
