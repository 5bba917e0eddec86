"""Batch normalisation in training: calls with a name, so that a native kernel can take their place."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

FORWARD, BACKWARD = "openipu_normalization_forward", "openipu_normalization_backward"


def normalised(
    x: jax.Array, scale: jax.Array, offset: jax.Array, epsilon: float, axis: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """A batch normalised by its own statistics, and these: the mean and the (biased) variance of every channel.

    Statistics have no gradient: what they are kept for is not differentiated.

    Args:
      x: the batch.
      scale, offset: of every channel.
      epsilon: what is added to variances.
      axis: of the channels.
    """

    @jax.custom_vjp
    def run(x: jax.Array, scale: jax.Array, offset: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        return forward(x, scale, offset, epsilon, axis)

    def ahead(x: jax.Array, scale: jax.Array, offset: jax.Array) -> tuple:
        y, mean, variance = forward(x, scale, offset, epsilon, axis)
        return (y, mean, variance), (x, scale, mean, variance)

    def back(kept: tuple, cotangents: tuple) -> tuple[jax.Array, ...]:
        return backward(cotangents[0], *kept, epsilon=epsilon, axis=axis)

    run.defvjp(ahead, back)
    y, mean, variance = run(x, scale, offset)
    return y, lax.stop_gradient(mean), lax.stop_gradient(variance)


def forward(
    x: jax.Array, scale: jax.Array, offset: jax.Array, epsilon: float, axis: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What `normalised` returns, without a gradient."""
    spread, mean_of = _spread(x, axis), _mean_over(x, axis)

    def run(x: jax.Array, scale: jax.Array, offset: jax.Array, epsilon: jax.Array) -> tuple:
        mean = mean_of(x)
        centered = x - spread(mean)
        variance = mean_of(centered * centered)
        inverse = lax.rsqrt(variance + epsilon)
        return centered * spread(inverse) * spread(scale) + spread(offset), mean, variance

    return _named(run, FORWARD, axis)(x, scale, offset, np.asarray(epsilon, x.dtype))


def backward(
    gradient: jax.Array,
    x: jax.Array,
    scale: jax.Array,
    mean: jax.Array,
    variance: jax.Array,
    epsilon: float,
    axis: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The gradients of a batch, of scale and offset, from that of the normalised batch and the batch's statistics."""
    spread, mean_of = _spread(x, axis), _mean_over(x, axis)
    count = np.asarray(x.size // x.shape[axis], x.dtype)

    def run(
        gradient: jax.Array, x: jax.Array, scale: jax.Array, mean: jax.Array, variance: jax.Array, epsilon: jax.Array
    ) -> tuple:
        inverse = lax.rsqrt(variance + epsilon)
        normal = (x - spread(mean)) * spread(inverse)
        of_offset, of_scale = mean_of(gradient), mean_of(gradient * normal)
        inner = gradient - spread(of_offset) - normal * spread(of_scale)
        return spread(scale * inverse) * inner, of_scale * count, of_offset * count

    return _named(run, BACKWARD, axis)(gradient, x, scale, mean, variance, np.asarray(epsilon, x.dtype))


def target(name: str) -> tuple[str, int] | None:
    """The kernel that a call's name stands for, and the axis of the channels; None for other calls."""
    kernel, _, axis = name.rpartition("_")
    return (kernel, int(axis)) if kernel in (FORWARD, BACKWARD) else None


def _named(function: Callable, kernel: str, axis: int) -> Callable:
    function.__name__ = f"{kernel}_{axis}"
    return jax.jit(function)


def _spread(x: jax.Array, axis: int) -> Callable[[jax.Array], jax.Array]:
    shape = x.shape
    return lambda values: lax.broadcast_in_dim(values, shape, (axis,))


def _mean_over(x: jax.Array, axis: int) -> Callable[[jax.Array], jax.Array]:
    others = tuple(dim for dim in range(x.ndim) if dim != axis)
    count = math.prod(x.shape[dim] for dim in others)
    return lambda values: jnp.sum(values, others) / np.asarray(count, values.dtype)
