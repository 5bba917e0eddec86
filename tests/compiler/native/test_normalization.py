"""Batch normalisation by native kernels computes what the program says, in any order of dimensions and in lanes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax.extend.core import jaxpr_as_fun

from openipu.compiler.normalization import normalised
from openipu.compiler.passes import native_normalization, optimise

pytestmark = pytest.mark.usefixtures("kernels")

_SETTINGS = settings(
    derandomize=True, deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def preferred(monkeypatch):
    """Native kernels however little there is to do."""
    monkeypatch.setattr(native_normalization, "_LEAST_WORK", 0)


def _step(axis, epsilon):
    """Everything a layer makes: results, statistics and gradients."""

    def step(x, scale, offset, weights):
        def loss(x, scale, offset):
            y, mean, variance = normalised(x, scale, offset, epsilon, axis)
            return (y * weights).sum(), (y, mean, variance)

        (_, made), gradients = jax.value_and_grad(loss, (0, 1, 2), has_aux=True)(x, scale, offset)
        return *made, *gradients

    return step


def _arguments(random, shape, axis, mean=0.0):
    channels = shape[axis]
    x = random.standard_normal(shape) * random.uniform(0.1, 3) + mean
    arrays = (x, random.standard_normal(channels), random.standard_normal(channels), random.standard_normal(shape))
    return [jnp.asarray(array, jnp.float32) for array in arrays]


def _optimised(step, arguments):
    closed = optimise(jax.make_jaxpr(step)(*arguments))
    names = {eqn.primitive.name for eqn in closed.jaxpr.eqns}
    return jax.jit(jaxpr_as_fun(closed)), names


def _torch(x, scale, offset, weights, axis, epsilon):
    """What PyTorch makes of it in double precision."""
    x, scale, offset = (torch.tensor(np.array(v), dtype=torch.float64, requires_grad=True) for v in (x, scale, offset))
    moved = x.moveaxis(axis, 1)
    y = torch.nn.functional.batch_norm(moved, None, None, scale, offset, True, 0.0, epsilon).moveaxis(1, axis)
    (y * torch.tensor(np.array(weights), dtype=torch.float64)).sum().backward()
    others = [dim for dim in range(x.ndim) if dim != axis]
    return [
        v.detach().numpy() for v in (y, x.mean(others), x.var(others, correction=0), x.grad, scale.grad, offset.grad)
    ]


def _close(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5 * max(1, np.abs(b).max()))


@_SETTINGS
@given(
    shape=st.lists(st.integers(1, 9), min_size=2, max_size=4),
    channels=st.sampled_from([1, 3, 16, 37, 64]),
    place=st.integers(0, 3),
    epsilon=st.sampled_from([1e-5, 1e-3, 0.1]),
    seed=st.integers(0, 9),
)
def test_kernels_compute_what_pytorch_does(preferred, shape, channels, place, epsilon, seed):
    axis = place % len(shape)
    # One number has no gradient, and two of them one that is mostly rounding.
    shape = [channels if dim == axis else size + 2 for dim, size in enumerate(shape)]
    arguments = _arguments(np.random.default_rng(seed), shape, axis)
    compute, names = _optimised(_step(axis, epsilon), arguments)
    assert {"openipu_normalization_forward", "openipu_normalization_backward"} <= names
    expected = _torch(*arguments, axis, epsilon)
    _close(compute(*arguments), expected)
    _close(_step(axis, epsilon)(*arguments), expected)


@pytest.mark.parametrize("shape, axis", [((8, 16, 16, 40), 3), ((8, 40, 16, 16), 1), ((40, 16, 16, 8), 0)])
def test_a_large_mean_costs_no_digits_of_the_variance(shape, axis):
    arguments = _arguments(np.random.default_rng(0), shape, axis, mean=1000.0)
    compute, names = _optimised(_step(axis, 1e-5), arguments)
    assert "openipu_normalization_forward" in names
    expected = _torch(*arguments, axis, 1e-5)
    np.testing.assert_allclose(compute(*arguments)[2], expected[2], rtol=1e-3)
    np.testing.assert_allclose(compute(*arguments)[0], expected[0], atol=5e-3)


def test_every_lane_has_statistics_of_its_own(preferred):
    random = np.random.default_rng(0)
    x, weights = (jnp.asarray(random.standard_normal((2, 3, 5, 6, 20)), jnp.float32) for _ in range(2))
    scale, offset = (jnp.asarray(random.standard_normal(20), jnp.float32) for _ in range(2))
    compute, _ = _optimised(_step(2, 1e-5), (x[0, 0], scale, offset, weights[0, 0]))
    inner = jax.vmap(compute, in_axes=(0, None, None, 0))
    found = jax.vmap(inner, in_axes=(0, None, None, 0))(x, scale, offset, weights)
    for i in range(2):
        for j in range(3):
            _close([value[i, j] for value in found], _torch(x[i, j], scale, offset, weights[i, j], 2, 1e-5))


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float64])
def test_other_types_stay_with_xla(preferred, dtype):
    with jax.enable_x64(True):
        arguments = [a.astype(dtype) for a in _arguments(np.random.default_rng(0), (4, 5, 6), 2)]
        _, names = _optimised(_step(2, 1e-3), arguments)
    assert not any("openipu" in name for name in names)


def test_little_work_stays_with_xla():
    _, names = _optimised(_step(1, 1e-3), _arguments(np.random.default_rng(0), (16, 64), 1))
    assert not any("openipu" in name for name in names)
