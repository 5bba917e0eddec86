"""Native sums of outer products are those of XLA, however operands are stored; others stay with XLA."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax
from jax.extend.core import jaxpr_as_fun

from openipu.compiler.passes import finish, native_outer, products
from tests.compiler.passes.checking import compare, primitives

pytestmark = pytest.mark.usefixtures("kernels")

_SETTINGS = settings(
    derandomize=True, deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def preferred(monkeypatch):
    """Native kernels however little there is to do."""
    for name in ("_LEAST", "_FEWEST_ROWS", "_NARROWEST"):
        monkeypatch.setattr(native_outer, name, 0)


def noise(*shape):
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape), jnp.float32)


def rewritten(function, *args):
    """What is left of a function, and that it computes the same."""
    before = jax.make_jaxpr(function)(*args)
    after = products.run(before)
    compare(jaxpr_as_fun(before), jaxpr_as_fun(after), tuple(jax.tree.leaves(args)), 1e-5)
    return primitives(after)


def over_rows(left, right, dims=2):
    """The sum over leading dimensions."""
    return lax.dot_general(left, right, ((tuple(range(dims)),) * 2, ((), ())))


@_SETTINGS
@given(
    rows=st.tuples(st.integers(1, 9), st.sampled_from([1, 7, 64, 90])),
    left=st.sampled_from([1, 3, 6, 7, 28, 65]),
    right=st.sampled_from([1, 5, 16, 63, 64, 100, 150]),
    swapped=st.booleans(),
)
def test_sums_over_rows_are_those_of_xla(preferred, rows, left, right, swapped):
    operands = [noise(*rows, left), noise(*rows, right)]
    found = rewritten(over_rows, *reversed(operands)) if swapped else rewritten(over_rows, *operands)
    assert "openipu_outer_sum" in found


@_SETTINGS
@given(order=st.permutations([0, 1, 2]), stored=st.permutations([0, 1, 2]))
def test_rows_may_be_summed_in_any_order_and_be_stored_in_any(preferred, order, stored):
    left, right = noise(4, 5, 6, 9), noise(*(4 + d for d in stored), 20)
    back = [*np.argsort(stored).tolist(), 3]
    dims = tuple(order)
    found = rewritten(lambda a, b: lax.dot_general(a, b.transpose(back), ((dims, dims), ((), ()))), left, right)
    assert "openipu_outer_sum" in found


def test_an_operand_that_was_transposed_is_read_as_it_is_stored(preferred):
    left, right = noise(5, 40, 9), noise(5, 40, 20)

    def turned(a, b):
        return lax.dot_general(a.transpose(2, 1, 0), b, (((2, 1), (0, 1)), ((), ())))

    closed = jax.make_jaxpr(turned)(left, right)
    (call,) = [e for e in products.run(closed).eqns if e.primitive.name == "openipu_outer_sum"]
    assert call.invars == closed.jaxpr.invars
    rewritten(turned, left, right)


def test_sums_in_loops_are_replaced_too(preferred):
    def body(total, x):
        return total + over_rows(x, jnp.tanh(x), 1), None

    found = rewritten(lambda xs: lax.scan(body, jnp.zeros((12, 12)), xs)[0], noise(3, 30, 12))
    assert "openipu_outer_sum" in found


def test_infinities_and_what_is_no_number_come_through(preferred):
    left, right = np.ones((80, 8), np.float32), np.ones((80, 24), np.float32)
    left[3, 1], right[70, 5], right[7, 2] = np.inf, np.nan, -np.inf
    rewritten(lambda a, b: over_rows(a, b, 1), left, right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((4000, 64), (4000, 4)),
        ((100, 200), (100, 200)),
        ((300, 10), (300, 12)),
    ],
)
def test_narrow_short_and_small_ones_stay_with_xla(left, right):
    assert "openipu_outer_sum" not in rewritten(lambda a, b: over_rows(a, b, 1), noise(*left), noise(*right))


def test_other_types_and_stacks_stay_with_xla(preferred):
    half = noise(80, 16).astype(jnp.bfloat16)
    assert "openipu_outer_sum" not in rewritten(lambda a: over_rows(a, a, 1), half)
    stacked = noise(3, 80, 16)
    assert "openipu_outer_sum" not in rewritten(lambda a: lax.dot_general(a, a, (((1,), (1,)), ((0,), (0,)))), stacked)


def test_a_finished_execution_has_them():
    x = noise(28, 64, 32)
    compute = finish(over_rows, (x, x))
    assert "openipu_outer_sum" in primitives(jax.make_jaxpr(compute)(x, x))
    np.testing.assert_allclose(jax.jit(compute)(x, x), over_rows(x, x), rtol=1e-4, atol=1e-3)
