"""The time loop of recurrent layers: one product a step, gates in one fused loop, weights' gradients after it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from openipu.compiler.recurrent import calls
from openipu.compiler.recurrent.cells import Arrays, Cell, over_time


class Kept(NamedTuple):
    """What the gradient of a loop needs: the states after every time, and the cell's own [time, batch, ...]."""

    states: Arrays
    cell: Arrays


def run(
    cell: Cell,
    inputs: Arrays,
    state: Arrays,
    weights: Arrays,
    mask: jax.Array | None = None,
    reverse: bool = False,
    dense: Arrays = (),
) -> tuple[jax.Array, Arrays]:
    """The outputs [time, batch, units] and the last state, with a gradient of our own.

    Args:
      cell: what happens at one time.
      inputs: [time, batch, ...], what does not depend on the state (see `Cell`).
      state: at the beginning.
      weights: what the state is multiplied with.
      mask: [time, batch]; where it is False the state stays as it is.
      reverse: from the last time to the first.
      dense: weights [features, gates] and bias [gates], where the first of `inputs` is the layer's input itself and
        the gates' share of it is still to be made.
    """
    if dense and not calls.multiplies(cell, inputs, weights):
        inputs, dense = (_product(inputs[0], dense), *inputs[1:]), ()

    @jax.custom_vjp
    def loop(inputs: Arrays, state: Arrays, weights: Arrays, dense: Arrays, mask: jax.Array | None) -> tuple:
        return ahead(inputs, state, weights, dense, mask)[0]

    def ahead(inputs: Arrays, state: Arrays, weights: Arrays, dense: Arrays, mask: jax.Array | None) -> tuple:
        last, kept = forward(cell, inputs, state, weights, mask, reverse, dense)
        return (kept.states[0], last), (inputs, state, weights, dense, mask, kept)

    def back(residuals: tuple, cotangents: tuple) -> tuple:
        inputs, state, weights, dense, mask, kept = residuals
        of_outputs, of_last = cotangents
        of_inputs, *others = backward(cell, inputs, state, weights, mask, kept, of_outputs, of_last, reverse)
        of_dense: Arrays = ()
        if dense:
            of_gates, *rest = of_inputs
            of_dense = (over_time(inputs[0], of_gates), of_gates.sum((0, 1)))
            of_inputs = (lax.dot_general(of_gates, dense[0], (((2,), (1,)), ((), ()))), *rest)
        return of_inputs, *others, of_dense, None

    loop.defvjp(ahead, back)
    return loop(inputs, state, weights, dense, mask)


def forward(
    cell: Cell,
    inputs: Arrays,
    state: Arrays,
    weights: Arrays,
    mask: jax.Array | None = None,
    reverse: bool = False,
    dense: Arrays = (),
) -> tuple[Arrays, Kept]:
    """The last state, and what `backward` needs; the outputs are `kept.states[0]`."""

    def loop(inputs: Arrays, state: Arrays, weights: Arrays, dense: Arrays, mask: jax.Array | None) -> tuple:
        if dense:
            inputs = (_product(inputs[0], dense), *inputs[1:])

        def step(state: Arrays, now: tuple) -> tuple[Arrays, Kept]:
            inputs, mask = now
            after, kept = cell.step(inputs, state, weights)
            if mask is not None:
                after = tuple(jnp.where(mask[:, None], new, old) for new, old in zip(after, state, strict=True))
            return after, Kept(after, kept)

        return lax.scan(step, state, (inputs, mask), reverse=reverse)

    return calls.named(loop, cell, calls.FORWARD, reverse, inputs, weights)(inputs, state, weights, dense, mask)


def backward(
    cell: Cell,
    inputs: Arrays,
    state: Arrays,
    weights: Arrays,
    mask: jax.Array | None,
    kept: Kept,
    of_outputs: jax.Array,
    of_last: Arrays,
    reverse: bool = False,
) -> tuple[Arrays, Arrays, Arrays]:
    """The gradients of inputs, first state and weights, from those of the outputs and of the last state."""
    before = tuple(map(lambda first, after: _before(first, after, reverse), state, kept.states))
    # Stored as the products read them, once for all times.
    transposed = cell.transposed(weights)

    def loop(
        of_last: Arrays,
        of_outputs: jax.Array,
        kept: Arrays,
        inputs: Arrays,
        before: Arrays,
        transposed: Arrays,
        mask: jax.Array | None,
    ) -> tuple[Arrays, Arrays]:
        def step(of_state: Arrays, now: tuple) -> tuple[Arrays, Arrays]:
            of_output, kept, inputs, before, mask = now
            of_state = (of_state[0] + of_output, *of_state[1:])
            stays: Arrays = ()
            if mask is not None:
                stays = tuple(jnp.where(mask[:, None], 0, g) for g in of_state)
                of_state = tuple(jnp.where(mask[:, None], g, 0) for g in of_state)
            of_before, found = cell.gradient(kept, inputs, before, transposed, of_state)
            if mask is not None:
                of_before = tuple(map(jnp.add, of_before, stays))
            return of_before, found

        return lax.scan(step, of_last, (of_outputs, kept, inputs, before, mask), reverse=not reverse)

    named = calls.named(loop, cell, calls.BACKWARD, reverse, inputs, weights)
    of_state, found = named(of_last, of_outputs, kept.cell, inputs, before, transposed, mask)
    of_inputs, of_weights = cell.finished(found, kept.cell, inputs, before)
    return of_inputs, of_state, of_weights


def _product(x: jax.Array, dense: Arrays) -> jax.Array:
    """The gates' share of a layer's inputs: for all times at once, which is cheaper than at each."""
    weights, bias = dense
    return lax.dot_general(x, weights, (((2,), (0,)), ((), ()))) + bias


def _before(first: jax.Array, after: jax.Array, reverse: bool) -> jax.Array:
    """The state before every time, from the first one and those after every time."""
    return jnp.concatenate([after[1:], first[None]] if reverse else [first[None], after[:-1]])
