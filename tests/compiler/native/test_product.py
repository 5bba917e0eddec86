"""Native products are those of XLA, however operands are stored; small and strange ones stay with XLA."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax
from jax.extend.core import jaxpr_as_fun

from openipu.compiler.passes import finish, native_product, products
from tests.compiler.passes.checking import compare, primitives

pytestmark = pytest.mark.usefixtures("kernels")

_SETTINGS = settings(
    derandomize=True, deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def preferred(monkeypatch):
    """Native kernels however little there is to do."""
    monkeypatch.setattr(native_product, "_LEAST", 0)
    monkeypatch.setattr(native_product, "_SMALLEST_SIDE", 1)


def rewritten(function, *args):
    """What is left of a function, and that it computes the same."""
    before = jax.make_jaxpr(function)(*args)
    after = products.run(before)
    compare(jaxpr_as_fun(before), jaxpr_as_fun(after), tuple(jax.tree.leaves(args)), 2e-6)
    return primitives(after)


def noise(*shape):
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape), jnp.float32)


@st.composite
def drawn_products(draw):
    """Two arrays whose dimensions are stacked, free and summed over in any order."""
    size = st.integers(1, 9)
    stack, rows, columns, depth = (draw(st.lists(size, max_size=m)) for m in (2, 2, 2, 2))
    left = [*(("b", i, s) for i, s in enumerate(stack)), *(("k", i, s) for i, s in enumerate(depth))]
    right = [*left, *(("n", i, s) for i, s in enumerate(columns))]
    left = [*left, *(("m", i, s) for i, s in enumerate(rows))]
    left, right = draw(st.permutations(left)), draw(st.permutations(right))

    def where(dims, kind, count):
        return tuple(next(d for d, name in enumerate(dims) if name[:2] == (kind, i)) for i in range(count))

    numbers = [tuple(where(dims, kind, len(of)) for dims in (left, right)) for kind, of in (("k", depth), ("b", stack))]
    return noise(*(s for *_, s in left)), noise(*(s for *_, s in right)), tuple(numbers)


@_SETTINGS
@given(case=drawn_products())
def test_products_of_any_dimensions_are_those_of_xla(preferred, case):
    left, right, numbers = case
    rewritten(lambda a, b: lax.dot_general(a, b, numbers), left, right)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_transposed_operands_are_read_as_they_are_stored(preferred, order):
    left = noise(12, 20) if order == (0, 1) else noise(20, 12)
    closed = jax.make_jaxpr(lambda a, b: lax.transpose(a, order) @ b.T)(left, noise(9, 20))
    (call,) = [e for e in products.run(closed).eqns if e.primitive.name == "openipu_product"]
    assert call.invars == closed.jaxpr.invars
    rewritten(lambda a, b: lax.transpose(a, order) @ b.T, left, noise(9, 20))


def test_products_in_loops_are_replaced_too(preferred):
    left = rewritten(lambda a: lax.scan(lambda x, _: (jnp.tanh(x @ x), None), a, length=3)[0], noise(16, 16))
    assert "openipu_product" in left
    assert "dot_general" not in left


def test_small_products_and_other_types_stay_with_xla():
    assert "openipu_product" not in rewritten(lambda a, b: a @ b, noise(32, 64), noise(64, 10))
    wide = noise(300, 300).astype(jnp.bfloat16)
    assert "openipu_product" not in primitives(products.run(jax.make_jaxpr(lambda a: a @ a)(wide)))


def test_a_finished_execution_keeps_its_structure():
    def execution(weights, feeds):
        return {"made": [feeds @ w for w in weights]}, feeds.sum()

    given = ([noise(256, 256), noise(256, 128)], noise(128, 256))
    made = jax.jit(finish(execution, given))(*given)
    for one, other in zip(jax.tree.leaves(made), jax.tree.leaves(execution(*given)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3)
    assert jax.tree.structure(made) == jax.tree.structure(execution(*given))
