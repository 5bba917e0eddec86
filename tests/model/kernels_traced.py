"""Kernels of published benchmarks as JAX programs: what a front end would hand to the model for them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

from openipu.hardware.target import Target
from openipu.model.nodes import kernels_of

_CONVOLUTION = ("NHWC", "HWIO", "NHWC")


def cycles(closed: core.ClosedJaxpr, target: Target) -> float:
    """Planned cycles of one evaluation."""
    return sum(node.cycles * node.count for node in kernels_of(closed, target, training=True))


def array(*shape: int, half: bool = True) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float16 if half else jnp.float32)


def trained(function: Callable, *arguments: Any, fixed: int = 0) -> core.ClosedJaxpr:
    """Forward pass, gradients of all arguments but the first `fixed`, and a step of gradient descent on the last."""

    def step(seed: jax.Array, *values: jax.Array) -> tuple:
        result, back = jax.vjp(lambda *free: function(*values[:fixed], *free), *values[fixed:])
        gradients = back(seed)
        return (result, *gradients[:-1], values[-1] - gradients[-1] * jnp.asarray(0.1, values[-1].dtype))

    result = jax.eval_shape(function, *arguments)
    return jax.make_jaxpr(step)(result, *arguments)


def product(rows: int, inner: int, columns: int, half: bool = True) -> core.ClosedJaxpr:
    """C += A B."""
    given = (array(rows, columns, half=half), array(rows, inner, half=half), array(inner, columns, half=half))
    return jax.make_jaxpr(lambda c, a, b: c + a @ b)(*given)


def dense(batch: int, inputs: int, outputs: int, groups: int = 1, half: bool = True) -> core.ClosedJaxpr:
    """A fully connected layer in training."""
    if groups > 1:
        given = array(groups, batch, inputs, half=half), array(groups, inputs, outputs, half=half)
    else:
        given = array(batch, inputs, half=half), array(inputs, outputs, half=half)
    return trained(lambda x, w: x @ w, *given)


def convolve(
    field: tuple[int, int], kernel: tuple[int, int], stride: int, padding: Any, groups: int
) -> Callable[[jax.Array, jax.Array], jax.Array]:
    return lambda x, w: lax.conv_general_dilated(
        x, w, (stride, stride), padding, dimension_numbers=_CONVOLUTION, feature_group_count=groups
    )


def pooled(kernel: int, stride: int, padding: Any) -> Callable[[jax.Array], jax.Array]:
    window, steps = (1, kernel, kernel, 1), (1, stride, stride, 1)
    return lambda x: lax.reduce_window(x, np.asarray(-np.inf, x.dtype), lax.max, window, steps, padding)
