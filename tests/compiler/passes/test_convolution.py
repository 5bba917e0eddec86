"""Convolutions of every kind are rewritten, and compute what they did."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jax import lax
from jax.extend.core import jaxpr_as_fun

from openipu.compiler.passes import optimise

from .checking import check, compare

_SETTINGS = settings(derandomize=True, deadline=None, max_examples=20)
_TOLERANCE = {"float32": 2e-5, "float16": 5e-3, "bfloat16": 4e-2}


@st.composite
def convolutions(draw, gradients: bool = False):
    """Operands and parameters of a convolution, anything XLA accepts."""
    rank = draw(st.sampled_from([1, 2, 2, 3]))
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    batch_grouped = draw(st.booleans()) and not gradients
    batch, inputs, outputs = (draw(st.sampled_from(sizes)) for sizes in ([1, 2, 8], [1, 2, 3], [1, 2, 4]))

    def per_dimension(low, high):
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    space, kernel = per_dimension(3, 6), per_dimension(1, draw(st.sampled_from([3, 6])))
    lhs = (batch * groups, inputs, *space) if batch_grouped else (batch, inputs * groups, *space)
    specs = [tuple(draw(st.permutations(range(rank + 2)))) for _ in range(3)]
    params = dict(
        window_strides=per_dimension(1, 2),
        padding=tuple((draw(st.integers(-1, 2)), draw(st.integers(-1, 2))) for _ in range(rank)),
        lhs_dilation=per_dimension(1, 2),
        rhs_dilation=per_dimension(1, 2),
        dimension_numbers=lax.ConvDimensionNumbers(*specs),
        feature_group_count=1 if batch_grouped else groups,
        batch_group_count=groups if batch_grouped else 1,
    )
    random = np.random.default_rng(draw(st.integers(0, 9)))

    def array(sizes, spec, dtype):
        shape = [0] * len(spec)
        for size, dim in zip(sizes, spec, strict=True):
            shape[dim] = size
        return jnp.asarray(random.standard_normal(shape), dtype)

    dtype = draw(st.sampled_from(["float32", "float32", "float16", "bfloat16"]))
    x, w = array(lhs, specs[0], dtype), array((outputs * groups, inputs, *kernel), specs[1], dtype)
    reach = [
        low + (n - 1) * dilation + 1 + high
        for (low, high), n, dilation in zip(params["padding"], space, params["lhs_dilation"], strict=True)
    ]
    span = [(k - 1) * dilation + 1 for k, dilation in zip(kernel, params["rhs_dilation"], strict=True)]
    assume(all(r >= s for r, s in zip(reach, span, strict=True)))
    return x, w, params


@_SETTINGS
@given(convolutions())
def test_any_convolution_becomes_matrix_products(case):
    x, w, params = case
    left = check(lambda x, w: lax.conv_general_dilated(x, w, **params), x, w, tolerance=_TOLERANCE[x.dtype.name])
    assert "conv_general_dilated" not in left


@settings(_SETTINGS, max_examples=10)
@given(convolutions(gradients=True))
def test_the_gradients_of_any_convolution(case):
    x, w, params = case
    x, w = x.astype(jnp.float32), w.astype(jnp.float32)

    def loss(x, w):
        return (lax.conv_general_dilated(x, w, **params) ** 2).sum()

    assert "conv_general_dilated" not in check(jax.grad(loss, argnums=(0, 1)), x, w, tolerance=1e-4)


@pytest.mark.parametrize("batch", [2, 16])
def test_a_depthwise_convolution_needs_no_matrix_product_forwards(batch):
    x, w = _normal(batch, 6, 6, 8), _normal(3, 3, 1, 8)

    def depthwise(x, w):
        return lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=8
        )

    assert not {"conv_general_dilated", "dot_general"} & check(depthwise, x, w)
    loss = jax.grad(lambda x, w: (depthwise(x, w) ** 2).sum(), argnums=(0, 1))
    assert "conv_general_dilated" not in check(loss, x, w, tolerance=1e-4)


@pytest.mark.parametrize("axis_of_weights", [None, 0])
def test_under_vmap_inside_scan(axis_of_weights):
    x, w = _normal(2, 4, 8, 7, 7, 3), _normal(2, 3, 3, 3, 5)

    def step(w, x):
        y = lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return w * 0.9 + y.mean(), jnp.maximum(y, 0)

    optimised = jaxpr_as_fun(optimise(jax.make_jaxpr(step)(w[0], x[0, 0])))

    def replicas(step):
        def run(w, x):
            w = w if axis_of_weights == 0 else w[0]
            lanes = jax.vmap(lambda w, x: lax.scan(lambda w, x: tuple(step(w, x)), w, x), (axis_of_weights, 0))
            return lanes(w, x)

        return run

    compare(replicas(step), replicas(optimised), (w, x))


def test_a_convolution_whose_patches_would_fill_the_memory_is_left_alone():
    x, w = jax.ShapeDtypeStruct((32, 224, 224, 64), jnp.float32), jax.ShapeDtypeStruct((5, 5, 64, 64), jnp.float32)
    step = jax.make_jaxpr(
        lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    )(x, w)
    assert [eqn.primitive.name for eqn in optimise(step).jaxpr.eqns] == ["conv_general_dilated"]


def test_integers_and_empty_arrays_are_left_alone():
    x = jnp.arange(36, dtype=jnp.int32).reshape(1, 1, 6, 6)
    assert "conv_general_dilated" in check(lambda x, w: lax.conv(x, w, (1, 1), "SAME"), x, x[:, :, :3, :3], tolerance=0)
    empty = jnp.zeros((0, 1, 6, 6))
    check(lambda x, w: lax.conv(x, w, (1, 1), "SAME"), empty, jnp.ones((1, 1, 3, 3)))


def _normal(*shape):
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape), jnp.float32)
