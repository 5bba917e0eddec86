"""Loops of small steps by the kernel are those of XLA; what it does not have stays with XLA."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax

from openipu.compiler.passes import loops
from openipu.compiler.passes.loops import assembly, schedule
from tests.compiler.passes.checking import primitives
from tests.compiler.passes.loops.looping import both, noise, traced

pytestmark = pytest.mark.usefixtures("kernels", "preferred")

_SETTINGS = settings(
    derandomize=True, deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
WEIGHTS = noise(8, 8) * 0.3
ROWS = noise(3, 5, 8)


@pytest.fixture
def preferred(monkeypatch):
    """The kernel however little there is to do."""
    monkeypatch.setattr(assembly, "_LEAST_MULTIPLICATIONS", 0)


@pytest.fixture(params=[0, 1 << 40], ids=["shared out", "alone"])
def sharing(request, monkeypatch):
    """Threads share out everything, or nothing."""
    monkeypatch.setattr(schedule, "LEAST", request.param)


def beside_a_product(function, rows=ROWS, tolerance=2e-6):
    """A function of rows in a loop that has weights."""
    both(lambda w, x: (w @ WEIGHTS, function(x)), WEIGHTS, rows, tolerance)


_FUNCTIONS = {
    "exp": lambda x: jnp.exp(x * 20),
    "expm1": jnp.expm1,
    "log": lambda x: jnp.log(jnp.abs(x) ** 15),
    "log1p": lambda x: jnp.log1p(jnp.abs(x)),
    "tanh": lambda x: jnp.tanh(x * 3),
    "logistic": lambda x: jax.nn.sigmoid(x * 5),
    "erf": lambda x: lax.erf(x * 2),
    "erfc": lambda x: lax.erfc(x * 3) * jnp.exp(jnp.minimum(9 * x * x, 40)),
    "sqrt": lambda x: jnp.sqrt(jnp.abs(x)),
    "rsqrt": lambda x: lax.rsqrt(jnp.abs(x)),
    "pow": lambda x: jnp.abs(x) ** 1.7,
    "powers": lambda x: (x**3, x**-2, x**0, jnp.square(x)),
    "rounding": lambda x: (jnp.floor(x), jnp.ceil(x), jnp.round(x * 2), jnp.sign(x), jnp.abs(x), -x),
    "angles": lambda x: (jnp.sin(x), jnp.cos(x)),
    "extremes": lambda x: (jnp.maximum(x, 0.1), jnp.minimum(x, 0.1), jnp.clip(x, -0.5, 0.5)),
    "choices": lambda x: (jnp.where(x > 0, x, 2 * x), (x > 0) & ~(x < 1), jnp.isfinite(x)),
    "integers": lambda x: (
        (x * 10).astype(jnp.int32) // 3, (x * 10).astype(jnp.int64) % 3, (x * 100).astype(jnp.int32) >> 2,
        (jnp.abs(x) * 1e6).astype(jnp.uint32) * jnp.uint32(2654435761) ^ jnp.uint32(77),
    ),
    "doubles": lambda x: (jnp.exp(x.astype(jnp.float64)) * 2.5 ** x.astype(jnp.float64)).astype(jnp.float32),
    "bits": lambda x: lax.bitcast_convert_type(x, jnp.int32) & 0x7FFFFF,
    "sums": lambda x: (x.sum(0), x.sum(1), x.sum(), x.mean(1, keepdims=True) - x),
    "reductions": lambda x: (x.max(1), x.min(0), x.prod(1), (x > 1).any(1), (x > -3).all(0)),
    "places": lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0)),
    "softmax": lambda x: (jax.nn.softmax(x), jax.nn.log_softmax(x), jax.nn.logsumexp(x, 1)),
    "orders": lambda x: (x.T + 1, x[1:4, 2:7:2] * 2, x.reshape(4, 10).T * 3),
    "together": lambda x: (jnp.concatenate([x, x[:, :3], x.sum(1, keepdims=True)], 1), jnp.stack([x, 2 * x], 1)),
    "one of each row": lambda x: jnp.take_along_axis(x, (jnp.abs(x[:, :1]) * 3).astype(jnp.int32), 1),
    "normalisation": lambda x: (x - x.mean(1, keepdims=True)) * lax.rsqrt(x.var(1, keepdims=True) + 1e-5),
}  # fmt: skip


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_functions_are_those_of_xla(name):
    beside_a_product(_FUNCTIONS[name])


def test_numbers_that_are_none_and_infinities_go_the_way_they_do_in_xla():
    special = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1e-40, 3e38, -1], np.float32)
    beside_a_product(
        lambda x: (
            jnp.exp(x), jnp.log(x), jnp.tanh(x), jax.nn.sigmoid(x), lax.erf(x), jnp.maximum(x, 0), jnp.minimum(0, x),
            jnp.sqrt(x), x.max(0), jnp.log1p(x), jnp.expm1(x), jnp.sign(x), x.astype(jnp.int32),
        ),
        np.tile(special, (2, 3, 1)),
    )  # fmt: skip


@_SETTINGS
@given(
    rows=st.sampled_from([1, 5, 6, 13, 64]),
    depth=st.sampled_from([1, 7, 64, 130, 300]),
    columns=st.sampled_from([1, 10, 16, 63, 130]),
    left_turned=st.booleans(),
    right_turned=st.booleans(),
)
def test_products_are_those_of_xla(sharing, rows, depth, columns, left_turned, right_turned):
    right = noise(*((columns, depth) if right_turned else (depth, columns)))
    given_rows = noise(3, *((depth, rows) if left_turned else (rows, depth)))

    def body(count, x):
        return count + 1, (x.T if left_turned else x) @ (right.T if right_turned else right)

    both(body, np.float32(0), given_rows)


def test_stacks_of_products_are_those_of_xla(sharing):
    x = noise(3, 4, 10, 6, 20)

    def body(count, q):
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, q)
        return count + 1, (scores, jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), q))

    both(body, np.float32(0), x)


def network(activation):
    """Logarithms of two layers' scores."""

    def scores(weights, x):
        first, bias, second = weights
        return jax.nn.log_softmax(activation(x @ first + bias) @ second)

    return scores


def trained(scores, update):
    """A step that picks rows of a table, and updates weights by their gradient."""
    table, labels = noise(40, 100), np.arange(40, dtype=np.int32) % 10

    def body(carry, numbers):
        weights, state, total = carry
        x, wanted = jnp.asarray(table)[numbers], jnp.asarray(labels)[numbers]

        def loss(weights):
            return -jnp.mean(jnp.where(wanted[:, None] == jnp.arange(10), scores(weights, x), 0).sum(1))

        value, gradients = jax.value_and_grad(loss)(weights)
        weights, state = update(weights, state, gradients)
        hits = jnp.sum(jnp.argmax(scores(weights, x), 1) == wanted)
        return (weights, state, total + value), (value, hits)

    weights = (noise(100, 70) * 0.1, np.zeros(70, np.float32), noise(70, 10) * 0.1)
    return body, (weights, jax.tree.map(np.zeros_like, weights), np.float32(0))


def plain(weights, state, gradients):
    """Gradient descent."""
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients), state


def with_momentum(weights, state, gradients):
    """Gradient descent in which weights follow what the state was: new values need old ones of others."""
    return (
        jax.tree.map(lambda w, s: w - 0.1 * s, weights, state),
        jax.tree.map(lambda s, g: 0.9 * s + g, state, gradients),
    )


def by_roots(weights, state, gradients):
    """Gradient descent in which steps are divided by the root of what the gradients' squares were."""
    state = jax.tree.map(lambda s, g: 0.9 * s + 0.1 * g * g, state, gradients)
    return jax.tree.map(lambda w, s, g: w - 0.01 * g / jnp.sqrt(s + 1e-3), weights, state, gradients), state


@pytest.mark.parametrize("update", [plain, with_momentum, by_roots])
@pytest.mark.parametrize("activation", [jax.nn.relu, jax.nn.gelu])
def test_training_is_that_of_xla(sharing, update, activation):
    numbers = np.random.default_rng(1).integers(0, 40, (20, 16)).astype(np.int32)
    both(*trained(network(activation), update), numbers)


def test_values_that_nothing_changes_come_back_as_they_were():
    both(lambda c, x: ((c[0], c[1] + x @ c[0]), c[1].sum()), (noise(20, 30), noise(10, 30)), noise(4, 10, 20))


def test_a_value_that_is_read_after_its_next_one_is_known_is_not_overwritten_before():
    def body(carry, x):
        new = carry * 0.5 + (x @ carry).sum()
        # Reads the new and the old one, in another order than they are stored in.
        return new, (carry.T @ new).sum(0)

    both(body, noise(20, 20), noise(6, 20, 20))


def test_random_numbers_are_made_before_the_loop():
    def body(weights, item):
        number, x = item
        kept = jax.random.bernoulli(jax.random.fold_in(jax.random.key(7), number), 0.5, x.shape)
        return weights * 0.9, jnp.where(kept, x, 0) @ weights

    both(body, noise(20, 30), (np.arange(5, dtype=np.uint32), noise(5, 10, 20)))


def test_a_short_loop_inside_is_part_of_the_step():
    def body(weights, x):
        start = jnp.zeros((2, 20), jnp.float32)
        state, sums = lax.scan(lambda s, part: (s + part @ weights, s.sum()), start, x.reshape(3, 2, 20))
        return weights + state.sum() * 1e-3, sums

    both(body, noise(20, 20), noise(4, 6, 20))


def test_a_program_of_one_step_is_one_call():
    def step(weights, x):
        return weights - 0.1 * (x.T @ jnp.tanh(x @ weights)), x.sum()

    arrays = noise(30, 30), noise(8, 30)
    before = jax.make_jaxpr(step)(*arrays)
    after = loops.run(before)
    assert primitives(after) == {"openipu_loop"}
    received = jax.jit(jax.extend.core.jaxpr_as_fun(after))(*arrays)
    for one, other in zip(step(*arrays), received, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(lambda c, x: ((c[1], c[0]), x @ c[0]), id="values that change places"),
        pytest.param(lambda c, x: ((c[0] + 1, c[1]), jnp.sort(x @ c[0], 1)), id="an operation that the kernel has not"),
        pytest.param(lambda c, x: ((c[0] + 1, c[1]), (x.astype(jnp.float16) @ c[0]).sum()), id="narrow numbers"),
    ],
)
def test_other_loops_stay_with_xla(body):
    before = traced(body, (noise(8, 8), noise(8, 8)), noise(3, 5, 8))
    assert "openipu_loop" not in primitives(loops.run(before))


@pytest.mark.parametrize("size", [4, 4096])
def test_steps_with_little_or_much_to_multiply_stay_with_xla(monkeypatch, size):
    monkeypatch.undo()
    shapes = jax.ShapeDtypeStruct((size, size), jnp.float32), jax.ShapeDtypeStruct((2, size, size), jnp.float32)
    before = traced(lambda w, x: (w + 1, x @ w), *shapes)
    assert "openipu_loop" not in primitives(loops.run(before))
