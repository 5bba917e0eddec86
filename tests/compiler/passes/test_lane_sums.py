"""Sums over replicas inside the products that make the gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openipu.compiler.passes import lane_sums

LANES = 4
GENERATOR = np.random.default_rng(0)
W = jnp.asarray(GENERATOR.standard_normal((5, 3)), jnp.float32)
X = jnp.asarray(GENERATOR.standard_normal((LANES, 6, 5)), jnp.float32)
D = jnp.asarray(GENERATOR.standard_normal((LANES, 6, 3)), jnp.float32)

STEPS = {
    "product": lambda w, x, d: x.T @ d,
    "transposed": lambda w, x, d: (d.T @ x).T,
    "reshaped": lambda w, x, d: (x.T @ d).reshape(5, 3, 1),
    "reshaped and transposed": lambda w, x, d: (x.T @ d).reshape(5, 3, 1).transpose(2, 0, 1),
    "with the weight": lambda w, x, d: x.T @ (d * jnp.tanh(x @ w)),
    "bias": lambda w, x, d: d.sum(0),
    "scaled": lambda w, x, d: 0.5 * (x.T @ d),
    "flat": lambda w, x, d: (x.T @ d).reshape(-1),
}


def evaluate(step, sums=(True,)):
    mapped = jax.vmap(step, in_axes=(None, 0, 0))
    closed = jax.make_jaxpr(mapped)(W, X, D)
    fast = lane_sums.summed(closed, list(sums))
    return mapped(W, X, D), fast(W, X, D), jax.make_jaxpr(fast)(W, X, D)


@pytest.mark.parametrize("name", STEPS)
def test_sums_are_those_of_the_replicas(name):
    per_replica, (got,), _ = evaluate(lambda *a: STEPS[name](*a))
    np.testing.assert_allclose(got, per_replica.sum(0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["product", "transposed", "reshaped", "reshaped and transposed", "flat"])
def test_no_gradient_of_a_single_replica_is_made(name):
    _, _, traced = evaluate(lambda *a: STEPS[name](*a))
    assert all(
        v.aval.size < LANES * 15 for e in traced.jaxpr.eqns for v in e.outvars if e.primitive.name == "dot_general"
    )
    assert "reduce_sum" not in {e.primitive.name for e in traced.jaxpr.eqns}


def test_a_value_used_twice_is_made_once_and_summed():
    def step(w, x, d):
        g = x.T @ d
        return g, g * 2

    per_replica, got, _ = evaluate(step, (True, False))
    np.testing.assert_allclose(got[0], per_replica[0].sum(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got[1], per_replica[1], rtol=1e-6)
