"""Activation functions whose gradient follows from their result, so that a loop keeps nothing else."""

from collections.abc import Callable

import attrs
import jax
import jax.numpy as jnp
from jax import lax


@attrs.frozen
class Activation:
    """A function of the gates.

    Attributes:
      function: of what arrives at a gate.
      gradient: from the function's result and the gradient that arrives at it, the gradient of the argument.
    """

    function: Callable[[jax.Array], jax.Array]
    gradient: Callable[[jax.Array, jax.Array], jax.Array]


def _clipped(slope: float) -> Activation:
    return Activation(
        lambda x: jnp.clip(x * jnp.asarray(slope, x.dtype) + jnp.asarray(0.5, x.dtype), 0, 1),
        lambda y, g: jnp.where((y > 0) & (y < 1), g * jnp.asarray(slope, g.dtype), 0),
    )


ACTIVATIONS: dict[str, Activation] = {
    "linear": Activation(lambda x: x, lambda y, g: g),
    "tanh": Activation(jnp.tanh, lambda y, g: g * (1 - y * y)),
    "sigmoid": Activation(lax.logistic, lambda y, g: g * (y * (1 - y))),
    "relu": Activation(lambda x: jnp.maximum(x, 0), lambda y, g: jnp.where(y > 0, g, 0)),
    "softmax": Activation(jax.nn.softmax, lambda y, g: y * (g - (g * y).sum(-1, keepdims=True))),
    # Keras 2 and the IPU's library have a slope of a fifth, Keras 3 of a sixth.
    "hard_sigmoid": _clipped(0.2),
    "hard_sigmoid_sixth": _clipped(1 / 6),
}
