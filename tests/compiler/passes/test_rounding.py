"""Stochastic rounding: right on average, with the variance of a coin, repeatable, in loops and branches too."""

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from openipu.compiler import compile_program
from openipu.compiler.key import key_of
from openipu.compiler.passes import rounding
from openipu.program import Plan, Program, Slot

DRAWS = 40_000


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("value", [1.0003, -1.0003, 3.1415927, 1e-3, -6e-8 * 1.3])
def test_a_cast_is_right_on_average_and_varies_as_a_coin_does(value, dtype):
    exact = np.float32(value)
    cast = np.asarray(rounding.cast(jnp.full(DRAWS, exact), dtype, jax.random.key(0)).astype(jnp.float32), np.float64)
    below, above = np.unique(cast) if len(np.unique(cast)) == 2 else (cast[0], cast[0])
    assert below < exact < above
    up = (exact - below) / (above - below)
    variance = up * (1 - up) * (above - below) ** 2
    assert abs(cast.mean() - exact) < 5 * np.sqrt(variance / DRAWS)
    np.testing.assert_allclose(cast.var(), variance, rtol=0.1)


def test_what_fits_overflows_or_is_no_number_is_cast_as_always():
    values = jnp.array([0.0, -0.0, 1.0, 0.5, 65504.0, 65510.0, 1e6, -1e6, jnp.inf, -jnp.inf, jnp.nan], jnp.float32)
    for seed in range(5):
        got = rounding.cast(values, jnp.float16, jax.random.key(seed))
        np.testing.assert_array_equal(got, values.astype(jnp.float16))


def spread_of(function, *arguments):
    """How many different values the casts of a function give over 64 keys."""
    closed = jax.make_jaxpr(function)(*arguments)
    run = jax.jit(lambda key: rounding.stochastic(closed, jax.tree.leaves(arguments), key)[0])
    return np.array([run(jax.random.key(i)) for i in range(64)], np.float32)


X = np.float32(1.0003)


def looped(x):
    return lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, x.astype(jnp.float16)), (0, jnp.float16(0)))[1]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jax.jit(lambda y: y.astype(jnp.float16))(x),
        lambda x: jax.nn.relu(x).astype(jnp.float16),
        lambda x: lax.scan(lambda c, _: (c + x.astype(jnp.float16), None), jnp.float16(0), None, 3)[0],
        looped,
        lambda x: lax.cond(x > 0, lambda: x.astype(jnp.float16), lambda: jnp.float16(0)),
        lambda x: jax.checkpoint(lambda y: y.astype(jnp.float16))(x),
    ],
    ids=["call", "custom derivative", "scan", "while", "cond", "checkpoint"],
)  # fmt: skip
def test_casts_inside_calls_loops_and_branches_are_stochastic(function):
    assert len(np.unique(spread_of(function, X))) > 1


def test_every_iteration_of_a_loop_draws_anew():
    def stacked(x):
        return lax.scan(lambda c, _: (c, x.astype(jnp.float16)), 0, None, 256)[1]

    assert 20 < (spread_of(stacked, X) > 1).sum(1).mean() < 200


def program() -> Program:
    def step(shared, local, batch, key):
        return [batch[0].mean(0)], [], [(batch[0] + shared[0].astype(jnp.float32)).astype(jnp.float16)]

    def update(shared, local, gradients):
        return [(shared[0].astype(jnp.float32) + gradients[0]).astype(jnp.float16)], {}

    return Program("cast", (Slot("w", (), "float16"),), (), (Slot("x", (64,), "float32"),), step, update, identity="c")


def run(plan, seed, add=1e-4):
    executable = compile_program(program(), plan)
    feed = np.full(plan.layout.shape((64,), plan.device_iterations), add, np.float32)
    seeds = plan.layout.seeds(list(range(seed, seed + plan.replicas)))
    with jax.enable_x64(True):
        shared, _, outputs, _, _ = executable.call([np.float16(1)], [], [feed], seeds)
    return float(shared[0]), np.asarray(outputs[0], np.float32)


def test_steps_and_updates_of_a_plan_round_at_random_by_their_seed():
    plan = Plan(device_iterations=1000, stochastic_rounding=True)
    weight, outputs = run(plan, 1)
    # Each of 1000 updates is a tenth of what float16 can tell apart: the nearest would never move.
    assert abs(weight - 1.1) < 0.02
    assert run(attrs.evolve(plan, stochastic_rounding=False), 1)[0] == 1
    assert 1 < len(np.unique(outputs[0])) < 4
    again, other = run(plan, 1), run(plan, 2)
    np.testing.assert_array_equal(again[1], outputs)
    assert (other[1] != outputs).any()


def test_replicas_round_differently_and_keep_equal_weights():
    _, outputs = run(Plan(replicas=2, device_iterations=4, stochastic_rounding=True), 1)
    assert (outputs[:, 0] != outputs[:, 1]).any()


def test_rounding_is_part_of_an_executables_key():
    assert key_of(program(), Plan(), None) != key_of(program(), Plan(stochastic_rounding=True), None)
