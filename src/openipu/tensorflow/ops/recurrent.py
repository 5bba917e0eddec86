"""The time loop of recurrent layers: the core's kernel in programs for the IPU, TensorFlow's own loop on the host."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import jax
import numpy as np
import tensorflow as tf

from openipu.compiler import recurrent
from openipu.compiler.recurrent.cells import CELLS
from openipu.tensorflow.ops.emit import capturing, emit_many
from openipu.tensorflow.stablehlo import custom_call

Tensors = Sequence[tf.Tensor]

ACTIVATIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "linear": tf.identity,
    "tanh": tf.tanh,
    "sigmoid": tf.sigmoid,
    "relu": tf.nn.relu,
    "softmax": tf.nn.softmax,
    "hard_sigmoid": lambda x: tf.clip_by_value(x * tf.cast(0.2, x.dtype) + tf.cast(0.5, x.dtype), 0, 1),
    "hard_sigmoid_sixth": lambda x: tf.clip_by_value(x * tf.cast(1 / 6, x.dtype) + tf.cast(0.5, x.dtype), 0, 1),
}


@tf.autograph.experimental.do_not_convert
def run(
    cell: recurrent.LSTM | recurrent.GRU, inputs: Tensors, state: Tensors, weights: Tensors, mask: Any = None
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """The outputs [time, batch, units] and the last state; arguments as of `openipu.compiler.recurrent.run`."""
    operands = [*inputs, *state, *weights, *(() if mask is None else (mask,))]
    if not capturing() or not all(o.shape.is_fully_defined() for o in operands):
        return _on_host(cell, inputs, state, weights, mask)
    counts = (len(inputs), len(state), len(weights), int(mask is not None))
    outputs, *last = _in_program(cell, counts, operands)
    return outputs, last


def _in_program(cell: Any, counts: tuple[int, ...], operands: Tensors) -> Tensors:
    config = {"cell": type(cell).__name__.lower(), "counts": counts, **attrs.asdict(cell)}
    states = counts[1]

    @tf.custom_gradient
    def loop(*operands: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], Callable]:
        found = emit_many("recurrent", operands, _specs(_forward, cell, counts, operands), **config)
        last, kept = found[:states], found[states:]

        def gradient(*upstream: tf.Tensor) -> list[tf.Tensor | None]:
            given = [*operands, *kept, *upstream]
            specs = _specs(_backward, cell, counts, given)
            return [*emit_many("recurrent_gradient", given, specs, **config), *([None] * counts[3])]

        return (kept[0], *last), gradient

    found: Any = loop(*operands)
    return found


def _specs(function: Callable, cell: Any, counts: tuple[int, ...], operands: Tensors) -> list[tf.TensorSpec]:
    shapes = [jax.ShapeDtypeStruct(tuple(o.shape), np.dtype(o.dtype.as_numpy_dtype)) for o in operands]
    found = jax.eval_shape(lambda *values: function(cell, counts, values), *shapes)
    return [tf.TensorSpec(s.shape, tf.as_dtype(s.dtype)) for s in found]


def _split(counts: tuple[int, ...], values: Sequence) -> tuple[tuple, tuple, tuple, Any, tuple]:
    """Inputs, state, weights, the mask or None, and what follows."""
    ends = np.cumsum(counts)
    groups = [tuple(values[a:b]) for a, b in zip([0, *ends], [*ends, len(values)], strict=True)]
    return groups[0], groups[1], groups[2], groups[3][0] if groups[3] else None, groups[4]


def _forward(cell: Any, counts: tuple[int, ...], values: Sequence) -> list:
    inputs, state, weights, mask, _ = _split(counts, values)
    return jax.tree.leaves(recurrent.forward(cell, inputs, state, weights, mask))


def _backward(cell: Any, counts: tuple[int, ...], values: Sequence) -> list:
    inputs, state, weights, mask, rest = _split(counts, values)
    states = len(state)
    kept, (of_outputs, *of_last) = rest[: -states - 1], rest[-states - 1 :]
    kept = recurrent.Kept(kept[:states], kept[states:])
    return jax.tree.leaves(recurrent.backward(cell, inputs, state, weights, mask, kept, of_outputs, tuple(of_last)))


def _cell(config: dict[str, Any]) -> tuple[Any, tuple[int, ...]]:
    fields = {name: value for name, value in config.items() if name not in ("cell", "counts")}
    return CELLS[config["cell"]](**fields), tuple(config["counts"])


@custom_call("openipu.recurrent")
def _recurrent(operands: list, config: dict[str, Any], kinds: tuple) -> list:
    return _forward(*_cell(config), operands)


@custom_call("openipu.recurrent_gradient")
def _recurrent_gradient(operands: list, config: dict[str, Any], kinds: tuple) -> list:
    return _backward(*_cell(config), operands)


def _on_host(
    cell: Any, inputs: Tensors, state: Tensors, weights: Tensors, mask: Any
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    step: Callable = _lstm_step if isinstance(cell, recurrent.LSTM) else _gru_step

    def advance(before: Tensors, now: tuple) -> list[tf.Tensor]:
        after = step(cell, now[: len(inputs)], before, weights)
        if mask is None:
            return after
        return [tf.where(now[-1][:, None], new, old) for new, old in zip(after, before, strict=True)]

    elements = (*inputs, *(() if mask is None else (mask,)))
    states = tf.scan(advance, elements, list(state))
    return states[0], [sequence[-1] for sequence in states]


def _lstm_step(cell: recurrent.LSTM, inputs: Tensors, state: Tensors, weights: Tensors) -> list[tf.Tensor]:
    act, gate = ACTIVATIONS[cell.activation], ACTIVATIONS[cell.recurrent_activation]
    enter, forget, new, out = tf.split(inputs[0] + tf.matmul(state[0], weights[0]), 4, axis=-1)
    memory = gate(forget) * state[1] + gate(enter) * act(new)
    return [gate(out) * act(memory), memory]


def _gru_step(cell: recurrent.GRU, inputs: Tensors, state: Tensors, weights: Tensors) -> list[tf.Tensor]:
    act, gate = ACTIVATIONS[cell.activation], ACTIVATIONS[cell.recurrent_activation]
    (hidden,) = state
    update, reset, new = tf.split(inputs[0], 3, axis=-1)
    share = tf.matmul(hidden, weights[0])
    if cell.reset_after:
        of_update, of_reset, of_new = tf.split(share + weights[1], 3, axis=-1)
        new = act(new + gate(reset + of_reset) * of_new)
    else:
        of_update, of_reset = tf.split(share, 2, axis=-1)
        new = act(new + tf.matmul(gate(reset + of_reset) * hidden, weights[1]))
    update = gate(update + of_update)
    if len(inputs) > 1:
        update *= 1 - inputs[1]
    return [update * hidden + (1 - update) * new]
