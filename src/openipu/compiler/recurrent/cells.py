"""What happens at one time of a recurrent layer, and its gradient."""

from typing import Any, Protocol

import attrs
import jax
import jax.numpy as jnp
from jax import lax

from openipu.compiler.recurrent.activations import ACTIVATIONS

Arrays = tuple[jax.Array, ...]


class Cell(Protocol):
    """From the state at one time to the next; the first array of a state is what the layer gives out.

    `inputs` are arrays [time, batch, ...] that do not depend on the state: above all the gates' share of the layer's
    inputs, one large product with its bias. `weights` multiply the state.
    """

    def step(self, inputs: Arrays, state: Arrays, weights: Arrays) -> tuple[Arrays, Arrays]:
        """The next state, and what its gradient needs."""
        ...

    def transposed(self, weights: Arrays) -> Arrays:
        """The weights as `gradient` multiplies with them."""
        ...

    def gradient(
        self, kept: Arrays, inputs: Arrays, before: Arrays, transposed: Arrays, of_state: Arrays
    ) -> tuple[Arrays, Arrays]:
        """The gradient of the state before, from that of the state after; and what `finished` needs of this time."""
        ...

    def finished(self, found: Arrays, kept: Arrays, inputs: Arrays, before: Arrays) -> tuple[Arrays, Arrays]:
        """The gradients of inputs and weights, from what was found at all times."""
        ...


def over_time(left: jax.Array, right: jax.Array) -> jax.Array:
    """The sum over times and batch of products: the gradient of a weight, as one product."""
    return lax.dot_general(left, right, (((0, 1), (0, 1)), ((), ())))


@attrs.frozen
class LSTM:
    """Long short-term memory: gates (input, forget, new, output) [batch, 4 units], state (hidden, memory).

    Weights: [units, 4 units], and [units, projected] where the hidden state is projected.
    """

    activation: str = "tanh"
    recurrent_activation: str = "sigmoid"

    def step(self, inputs: Arrays, state: Arrays, weights: Arrays) -> tuple[Arrays, Arrays]:
        """The next state."""
        act, gate = ACTIVATIONS[self.activation].function, ACTIVATIONS[self.recurrent_activation].function
        enter, forget, new, out = jnp.split(inputs[0] + lax.dot(state[0], weights[0]), 4, axis=-1)
        enter, forget, new, out = gate(enter), gate(forget), act(new), gate(out)
        memory = forget * state[1] + enter * new
        shown = act(memory)
        hidden = out * shown
        if len(weights) > 1:
            hidden = lax.dot(hidden, weights[1])
        return (hidden, memory), (enter, forget, new, out, shown)

    def transposed(self, weights: Arrays) -> Arrays:
        """Both."""
        return tuple(weight.T for weight in weights)

    def gradient(
        self, kept: Arrays, inputs: Arrays, before: Arrays, transposed: Arrays, of_state: Arrays
    ) -> tuple[Arrays, Arrays]:
        """The gradient of one step."""
        act, gate = ACTIVATIONS[self.activation].gradient, ACTIVATIONS[self.recurrent_activation].gradient
        enter, forget, new, out, shown = kept
        arrived, of_memory = of_state
        of_hidden = lax.dot(arrived, transposed[1]) if len(transposed) > 1 else arrived
        of_memory = of_memory + act(shown, of_hidden * out)
        of_gates = jnp.concatenate(
            [gate(enter, of_memory * new), gate(forget, of_memory * before[1]), act(new, of_memory * enter),
             gate(out, of_hidden * shown)], axis=-1,
        )  # fmt: skip
        found: Arrays = (of_gates, arrived) if len(transposed) > 1 else (of_gates,)
        back = next(iter(transposed))
        return (lax.dot(of_gates, back), of_memory * forget), found

    def finished(self, found: Arrays, kept: Arrays, inputs: Arrays, before: Arrays) -> tuple[Arrays, Arrays]:
        """The weights' gradients."""
        of_gates, *of_projected = found
        weights = [over_time(before[0], of_gates), *(over_time(kept[3] * kept[4], o) for o in of_projected)]
        return (of_gates,), tuple(weights)


@attrs.frozen
class GRU:
    """Gated recurrent unit: gates (update, reset, new) [batch, 3 units], state (hidden,).

    A second input [batch, 1], where there is one, is the attention that takes its share from the update gate.
    With `reset_after` the weights are [units, 3 units] and a bias [3 units] of the state's share; without it
    [units, 2 units] for the two gates and [units, units] for the new value.
    """

    activation: str = "tanh"
    recurrent_activation: str = "sigmoid"
    reset_after: bool = True

    def step(self, inputs: Arrays, state: Arrays, weights: Arrays) -> tuple[Arrays, Arrays]:
        """The next state."""
        act, gate = ACTIVATIONS[self.activation].function, ACTIVATIONS[self.recurrent_activation].function
        (hidden,) = state
        update, reset, new = jnp.split(inputs[0], 3, axis=-1)
        share = lax.dot(hidden, weights[0])
        if self.reset_after:
            of_update, of_reset, of_new = jnp.split(share + weights[1], 3, axis=-1)
        else:
            of_update, of_reset = jnp.split(share, 2, axis=-1)
        update, reset = gate(update + of_update), gate(reset + of_reset)
        if self.reset_after:
            extra: Arrays = (of_new,)
            new = act(new + reset * of_new)
        else:
            extra = ()
            new = act(new + lax.dot(reset * hidden, weights[1]))
        passed = update * (1 - inputs[1]) if len(inputs) > 1 else update
        return (new + passed * (hidden - new),), (update, reset, new, *extra)

    def transposed(self, weights: Arrays) -> Arrays:
        """The matrices."""
        return (weights[0].T,) if self.reset_after else tuple(weight.T for weight in weights)

    def gradient(
        self, kept: Arrays, inputs: Arrays, before: Arrays, transposed: Arrays, of_state: Arrays
    ) -> tuple[Arrays, Arrays]:
        """The gradient of one step."""
        act, gate = ACTIVATIONS[self.activation].gradient, ACTIVATIONS[self.recurrent_activation].gradient
        (hidden,), (arrived,) = before, of_state
        update, reset, new = kept[:3]
        passed, attention = update, ()
        of_passed = arrived * (hidden - new)
        of_update = of_passed
        if len(inputs) > 1:
            passed, of_update = update * (1 - inputs[1]), of_passed * (1 - inputs[1])
            attention = (-(of_passed * update).sum(-1, keepdims=True),)
        of_new = act(new, arrived * (1 - passed))
        of_update = gate(update, of_update)
        if self.reset_after:
            of_reset = gate(reset, of_new * kept[3])
            share = jnp.concatenate([of_update, of_reset, of_new * reset], axis=-1)
            back = lax.dot(share, transposed[0])
        else:
            of_product = lax.dot(of_new, transposed[1])
            of_reset = gate(reset, of_product * hidden)
            back = lax.dot(jnp.concatenate([of_update, of_reset], axis=-1), transposed[0]) + of_product * reset
        of_gates = jnp.concatenate([of_update, of_reset, of_new], axis=-1)
        return (back + arrived * passed,), (of_gates, *attention)

    def finished(self, found: Arrays, kept: Arrays, inputs: Arrays, before: Arrays) -> tuple[Arrays, Arrays]:
        """The weights' gradients."""
        of_gates, (hidden,), reset = found[0], before, kept[1]
        units = hidden.shape[-1]
        gates, new = of_gates[..., : 2 * units], of_gates[..., 2 * units :]
        if self.reset_after:
            share = jnp.concatenate([gates, new * reset], axis=-1)
            return found, (over_time(hidden, share), share.sum((0, 1)))
        return found, (over_time(hidden, gates), over_time(hidden * reset, new))


@attrs.frozen
class Plain:
    """One activation: gates [batch, units], state (hidden,), weights ([units, units],)."""

    activation: str = "tanh"

    def step(self, inputs: Arrays, state: Arrays, weights: Arrays) -> tuple[Arrays, Arrays]:
        """The next state."""
        hidden = ACTIVATIONS[self.activation].function(inputs[0] + lax.dot(state[0], weights[0]))
        return (hidden,), (hidden,)

    def transposed(self, weights: Arrays) -> Arrays:
        """The one."""
        return (weights[0].T,)

    def gradient(
        self, kept: Arrays, inputs: Arrays, before: Arrays, transposed: Arrays, of_state: Arrays
    ) -> tuple[Arrays, Arrays]:
        """The gradient of one step."""
        of_gates = ACTIVATIONS[self.activation].gradient(kept[0], of_state[0])
        return (lax.dot(of_gates, transposed[0]),), (of_gates,)

    def finished(self, found: Arrays, kept: Arrays, inputs: Arrays, before: Arrays) -> tuple[Arrays, Arrays]:
        """The weight's gradient."""
        return found, (over_time(before[0], found[0]),)


CELLS: dict[str, Any] = {"lstm": LSTM, "gru": GRU, "plain": Plain}
