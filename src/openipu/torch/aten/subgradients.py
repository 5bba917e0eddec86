"""Functions with corners, given torch's choice of gradient there where JAX chooses another."""

import jax
import jax.numpy as jnp
from jax import lax


@jax.custom_jvp
def relu(x: jax.Array) -> jax.Array:
    """max(x, 0), with gradient 0 at 0."""
    return jnp.maximum(x, jnp.zeros((), x.dtype))


@relu.defjvp
def _relu_jvp(primals: tuple, tangents: tuple) -> tuple:
    (x,), (dx,) = primals, tangents
    return relu(x), lax.select(x > 0, dx, jnp.zeros_like(dx))


@jax.custom_jvp
def _absolute(x: jax.Array) -> jax.Array:
    return jnp.abs(x)


@_absolute.defjvp
def _absolute_jvp(primals: tuple, tangents: tuple) -> tuple:
    (x,), (dx,) = primals, tangents
    return jnp.abs(x), jnp.sign(x) * dx


def absolute(x: jax.Array) -> jax.Array:
    """|x|, with gradient 0 at 0."""
    return _absolute(x) if jnp.issubdtype(x.dtype, jnp.floating) else jnp.abs(x)


def safe_sqrt(x: jax.Array) -> jax.Array:
    """A square root whose gradient at 0 is 0, as torch has it for norms and deviations."""
    zero = x == 0
    return jnp.where(zero, jnp.zeros_like(x), jnp.sqrt(jnp.where(zero, jnp.ones_like(x), x)))


def safe_power(x: jax.Array, exponent: float) -> jax.Array:
    """A power of what is not negative, whose gradient at 0 is 0."""
    zero = x == 0
    return jnp.where(zero, jnp.zeros_like(x), jnp.power(jnp.where(zero, jnp.ones_like(x), x), exponent))


def shared(value: jax.Array, x: jax.Array) -> jax.Array:
    """A value found among those of `x`, its gradient shared evenly by all elements that equal it."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return value
    value = lax.stop_gradient(value)
    equal = (lax.stop_gradient(x) == value) | (jnp.isnan(value) & jnp.isnan(lax.stop_gradient(x)))
    weights = equal.astype(x.dtype) / jnp.maximum(jnp.sum(equal.astype(x.dtype)), 1)
    # Only the elements that equal the value take part: the others may be infinite.
    taking_part = jnp.where(equal, x, jnp.zeros_like(x))
    moved = taking_part - lax.stop_gradient(taking_part)
    return value + jnp.sum(moved * weights)
