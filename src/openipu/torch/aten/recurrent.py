"""Recurrent layers as scans over time, whole instead of taken apart step by step."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import torch
from jax import lax
from torch.fx import Node

from openipu.torch.aten.corners import relu
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


# (gates, hidden state's share of the gates, state, projection) -> state; the first of a state is the output.
Step = Callable[[jax.Array, jax.Array, tuple, jax.Array | None], tuple]


@attrs.frozen
class Cell:
    """What happens at one time.

    Attributes:
      step: from one state to the next.
      gates: the share of the gates that does not depend on the state, from the inputs' and the hidden state's bias.
      share: the part of the gates' gradient that is the gradient of the hidden state's share.
    """

    step: Step
    gates: Callable[[jax.Array, jax.Array | None], jax.Array]
    share: Callable[[jax.Array], jax.Array]


def _dense(x: jax.Array, weight: jax.Array, bias: jax.Array | None) -> jax.Array:
    product = lax.dot_general(x, weight, (((x.ndim - 1,), (1,)), ((), ())))
    return product if bias is None else product + bias


def _biased(gates: jax.Array, bias: jax.Array | None) -> jax.Array:
    return gates if bias is None else gates + bias


def _lstm_step(gates: jax.Array, share: jax.Array, state: tuple, projection: jax.Array | None) -> tuple:
    enter, forget, new, out = jnp.split(gates + share, 4, axis=-1)
    cell = lax.logistic(forget) * state[1] + lax.logistic(enter) * jnp.tanh(new)
    hidden = lax.logistic(out) * jnp.tanh(cell)
    if projection is not None:
        hidden = _dense(hidden, projection, None)
    return hidden, cell


def _gru_step(gates: jax.Array, share: jax.Array, state: tuple, projection: jax.Array | None) -> tuple:
    (hidden,) = state
    reset, update, new, new_bias = jnp.split(gates, 4, axis=-1)
    reset_h, update_h, new_h = jnp.split(share, 3, axis=-1)
    update = lax.logistic(update + update_h)
    new = jnp.tanh(new + lax.logistic(reset + reset_h) * (new_h + new_bias))
    return (new + update * (hidden - new),)


def _gru_gates(gates: jax.Array, bias: jax.Array | None) -> jax.Array:
    """With a fourth part: the reset gate scales the hidden state's share of the new value, its bias included."""
    size = gates.shape[-1] // 3
    parts = jnp.zeros(3 * size, gates.dtype) if bias is None else bias
    last = jnp.broadcast_to(parts[2 * size :], (*gates.shape[:-1], size))
    return jnp.concatenate([gates[..., : 2 * size] + parts[: 2 * size], gates[..., 2 * size :], last], axis=-1)


def _gru_share(gradient: jax.Array) -> jax.Array:
    size = gradient.shape[-1] // 4
    return jnp.concatenate([gradient[..., : 2 * size], gradient[..., 3 * size :]], axis=-1)


def _plain_cell(activation: Callable) -> Cell:
    def step(gates: jax.Array, share: jax.Array, state: tuple, projection: jax.Array | None) -> tuple:
        return (activation(gates + share),)

    return Cell(step, _biased, lambda gradient: gradient)


_LSTM = Cell(_lstm_step, _biased, lambda gradient: gradient)
_GRU = Cell(_gru_step, _gru_gates, _gru_share)


def _run(cell: Cell, x: jax.Array, state: tuple, weights: Weights, reverse: bool) -> tuple[jax.Array, tuple]:
    """One direction of one layer over [time, batch, features]."""
    # One large product for all times is cheaper than one at each step; so is its gradient.
    gates = cell.gates(_dense(x, weights.inputs, weights.input_bias), weights.hidden_bias)

    def scan(gates: jax.Array, state: tuple, projection: Any, hidden: jax.Array) -> tuple[jax.Array, tuple]:
        # Each way the weights are stored as the product reads them fastest, once for all times.
        transposed = hidden.T

        def step(state: tuple, now: jax.Array) -> tuple:
            state = cell.step(now, _product(state[0], hidden, transposed), state, projection)
            return state, state[0]

        last, outputs = lax.scan(step, state, gates, reverse=reverse)
        return outputs, last

    layer = jax.custom_vjp(scan)

    def forward(gates: jax.Array, state: tuple, projection: Any, hidden: jax.Array) -> tuple:
        made, back = jax.vjp(lambda g, s, p: scan(g, s, p, hidden), gates, state, projection)
        return made, (back, made[0], state[0])

    def backward(kept: tuple, cotangents: tuple) -> tuple:
        back, outputs, first = kept
        of_gates, of_state, of_projection = back(cotangents)
        before = [outputs[1:], first[None]] if reverse else [first[None], outputs[:-1]]
        share = cell.share(of_gates)
        of_hidden = lax.dot_general(share, jnp.concatenate(before), (((0, 1), (0, 1)), ((), ())))
        return of_gates, of_state, of_projection, of_hidden

    layer.defvjp(forward, backward)
    return layer(gates, state, weights.projection, weights.hidden)


@jax.custom_vjp
def _product(x: jax.Array, weight: jax.Array, transposed: jax.Array) -> jax.Array:
    """Multiplies with the transpose of a weight that has no gradient here."""
    return lax.dot(x, transposed)


def _product_forward(x: jax.Array, weight: jax.Array, transposed: jax.Array) -> tuple[jax.Array, jax.Array]:
    return lax.dot(x, transposed), weight


def _product_backward(weight: jax.Array, cotangent: jax.Array) -> tuple[jax.Array, None, None]:
    return lax.dot(cotangent, weight), None, None


_product.defvjp(_product_forward, _product_backward)


def _layers(
    context: Context,
    cell: Cell,
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
            out, last = _run(cell, x, state, weights, reverse=direction == 1)
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


def _single_state(cell: Cell) -> Callable:
    def run(context: Context, x: jax.Array, state: jax.Array, params: Arrays, *settings: Any) -> tuple:
        return _layers(context, cell, x, [state], params, *settings)

    return run


op(aten.gru.input, random=_drops)(_single_state(_GRU))
op(aten.rnn_tanh.input, random=_drops)(_single_state(_plain_cell(jnp.tanh)))
op(aten.rnn_relu.input, random=_drops)(_single_state(_plain_cell(relu)))
