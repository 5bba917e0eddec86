"""Recurrent layers, whole instead of taken apart step by step: layers and directions over the core's time loop."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import torch
from torch.fx import Node

from openipu.compiler import recurrent
from openipu.compiler.recurrent import GRU, LSTM, Cell, Plain
from openipu.torch.aten.registry import Context, op

aten = torch.ops.aten
Arrays = Sequence[jax.Array]


@attrs.frozen
class Weights:
    """What one direction of one layer multiplies with; absent ones are None."""

    inputs: jax.Array
    hidden: jax.Array
    input_bias: jax.Array | None = None
    hidden_bias: jax.Array | None = None
    projection: jax.Array | None = None

    def bias(self, of: jax.Array | None) -> jax.Array:
        """One of the biases; zeros where it is absent."""
        return jnp.zeros(self.inputs.shape[0], self.inputs.dtype) if of is None else of


@attrs.frozen
class Layer:
    """A kind of layer, in the terms of the core's kernel.

    Attributes:
      cell: what happens at one time.
      prepared: what the inputs are multiplied with and the bias that is added, and what the state is multiplied with.
    """

    cell: Cell
    prepared: Callable[[Weights], tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, ...]]]


def _biased(weights: Weights) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, ...]]:
    projection = () if weights.projection is None else (weights.projection.T,)
    bias = weights.bias(weights.input_bias)
    if weights.hidden_bias is not None:
        bias = bias + weights.hidden_bias
    return (weights.inputs.T, bias), (weights.hidden.T, *projection)


def _gru_order(weights: Weights) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, ...]]:
    """PyTorch has the reset gate before the update gate; the kernel the other way round."""

    def ordered(values: jax.Array) -> jax.Array:
        reset, update, new = jnp.split(values, 3, axis=-1)
        return jnp.concatenate([update, reset, new], axis=-1)

    of_inputs, of_state = (weights.bias(b) for b in (weights.input_bias, weights.hidden_bias))
    return (ordered(weights.inputs.T), ordered(of_inputs)), (ordered(weights.hidden.T), ordered(of_state))


_LSTM = Layer(LSTM(), _biased)
_GRU = Layer(GRU(), _gru_order)


def _run(layer: Layer, x: jax.Array, state: tuple, weights: Weights, reverse: bool) -> tuple[jax.Array, tuple]:
    """One direction of one layer over [time, batch, features]."""
    dense, hidden = layer.prepared(weights)
    return recurrent.run(layer.cell, (x,), state, hidden, reverse=reverse, dense=dense)


def _layers(
    context: Context,
    kind: Layer,
    x: jax.Array,
    states: Arrays,
    params: Arrays,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[jax.Array, ...]:
    unbatched = x.ndim == 2
    if unbatched:
        x, states = x[:, None], [state[:, None] for state in states]
    elif batch_first:
        x = x.swapaxes(0, 1)
    directions = 2 if bidirectional else 1
    each = len(params) // (num_layers * directions)
    finals = []
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            number = layer * directions + direction
            weights = _weights(params[number * each : (number + 1) * each], has_biases)
            state = tuple(s[number] for s in states)
            out, last = _run(kind, x, state, weights, reverse=direction == 1)
            outputs.append(out)
            finals.append(last)
        x = outputs[0] if directions == 1 else jnp.concatenate(outputs, axis=-1)
        if train and dropout > 0 and layer < num_layers - 1:
            x = _dropped(context, x, dropout, layer)
    ends = [jnp.stack(group) for group in zip(*finals, strict=True)]
    if unbatched:
        return x[:, 0], *(end[:, 0] for end in ends)
    return x.swapaxes(0, 1) if batch_first else x, *ends


def _weights(params: Arrays, has_biases: bool) -> Weights:
    projection = params[-1] if len(params) == (5 if has_biases else 3) else None
    biases = params[2:4] if has_biases else ()
    return Weights(params[0], params[1], *biases, **({} if projection is None else {"projection": projection}))


def _dropped(context: Context, x: jax.Array, rate: float, layer: int) -> jax.Array:
    kept = jax.random.bernoulli(jax.random.fold_in(context.drawing_key, layer), 1 - rate, x.shape)
    return jnp.where(kept, x / jnp.asarray(1 - rate, x.dtype), jnp.zeros_like(x))


def _drops(node: Node) -> bool:
    _, layers, dropout, train = node.args[3:7]
    return bool(train) and bool(dropout) and bool(layers != 1)


@op(aten.lstm.input, random=_drops)
def _lstm(context: Context, x: jax.Array, states: Arrays, params: Arrays, *settings: Any) -> tuple[jax.Array, ...]:
    return _layers(context, _LSTM, x, states, params, *settings)


def _single_state(layer: Layer) -> Callable:
    def run(context: Context, x: jax.Array, state: jax.Array, params: Arrays, *settings: Any) -> tuple:
        return _layers(context, layer, x, [state], params, *settings)

    return run


op(aten.gru.input, random=_drops)(_single_state(_GRU))
op(aten.rnn_tanh.input, random=_drops)(_single_state(Layer(Plain("tanh"), _biased)))
op(aten.rnn_relu.input, random=_drops)(_single_state(Layer(Plain("relu"), _biased)))
