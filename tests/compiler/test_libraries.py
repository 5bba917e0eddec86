"""The choice between XLA's two libraries for products, by what a step multiplies."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from openipu.compiler import libraries

EIGEN = {"xla_cpu_experimental_ynn_fusion_type": ""}


def options(function, *shapes, platform="cpu"):
    return libraries.options(jax.make_jaxpr(function)(*(jnp.zeros(shape) for shape in shapes)), platform)


def train(weights, x):
    """A layer and the gradient of its weights: nothing is multiplied by a transposed right side."""
    return jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w)))(weights)


def train_two(first, second, x):
    """The gradient of the first layer's output is a product with the transposed second."""
    return jax.grad(lambda w: jnp.sum(jnp.tanh(jnp.tanh(x @ w) @ second)))(first)


def test_plain_layers_are_for_eigen():
    assert options(train, (784, 128), (32, 784)) == EIGEN


def test_a_small_transposed_product_does_not_matter():
    assert options(train_two, (784, 128), (128, 10), (32, 784)) == EIGEN
    assert options(train_two, (784, 256), (256, 512), (32, 784)) == {}


def test_a_loop_that_trains_is_as_its_step():
    def loop(weights, x):
        return lax.fori_loop(0, 3, lambda i, w: w - train(w, x[i]), weights)

    assert options(loop, (784, 128), (3, 32, 784)) == EIGEN


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda x: x + 1, [(4, 4)]),
        (lambda x, w: lax.conv(x, w, (1, 1), "SAME"), [(1, 3, 8, 8), (4, 3, 3, 3)]),
        (lambda x, w: jnp.einsum("bij,bjk->bik", x, w), [(2, 3, 4), (2, 4, 5)]),
        (lambda x, w: lax.fori_loop(0, 3, lambda _, h: h @ w, x), [(3, 4), (4, 4)]),
    ],
    ids=["nothing", "convolution", "batched", "recurrence"],
)
def test_all_else_is_left_to_xla(function, shapes):
    assert options(function, *shapes) == {}


def test_other_backends_have_no_choice():
    assert options(train, (784, 128), (32, 784), platform="gpu") == {}


def test_the_users_own_flag_counts(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_experimental_ynn_fusion_type=LIBRARY_FUSION_TYPE_DOT")
    assert options(train, (784, 128), (32, 784)) == {}
