"""Compare a function with its optimised self."""

from collections.abc import Callable

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from openipu.compiler.passes import optimise
from openipu.compiler.passes.jaxprs import map_subjaxprs

# Tests compile many tiny programs: compile time is all that matters.
_FAST_COMPILE = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def primitives(closed_jaxpr: ClosedJaxpr) -> set[str]:
    """Names of all primitives in a jaxpr and in the jaxprs inside it."""
    names = set()

    def visit(inner: ClosedJaxpr) -> ClosedJaxpr:
        for eqn in inner.jaxpr.eqns:
            names.add(eqn.primitive.name)
            map_subjaxprs(eqn.params, visit)
        return inner

    visit(closed_jaxpr)
    return names


def check(function: Callable, *args, tolerance: float = 1e-5) -> set[str]:
    """Asserts that optimising `function` changes neither results nor dtypes; returns the primitives left.

    Args:
      function: takes and returns arrays.
      args: its arguments.
      tolerance: relative to the largest result, 0 for exactly equal.
    """
    before = jax.make_jaxpr(function)(*args)
    after = optimise(before)
    assert [v.aval.shape for v in after.jaxpr.outvars] == [v.aval.shape for v in before.jaxpr.outvars]
    compare(jaxpr_as_fun(before), jaxpr_as_fun(after), tuple(jax.tree.leaves(args)), tolerance)
    return primitives(after)


def compare(expected: Callable, received: Callable, args: tuple, tolerance: float = 1e-5) -> None:
    """Asserts that two functions return the same."""
    both = jax.jit(lambda *a: (expected(*a), received(*a)), compiler_options=_FAST_COMPILE)
    want, have = both(*args)
    for one, other in zip(jax.tree.leaves(want), jax.tree.leaves(have), strict=True):
        same(other, one, tolerance)


def same(received, expected, tolerance: float) -> None:
    """Asserts equal dtypes and values."""
    assert received.dtype == expected.dtype
    want, have = np.asarray(expected, np.float64), np.asarray(received, np.float64)
    if tolerance == 0:
        np.testing.assert_array_equal(have, want)
    else:
        scale = np.max(np.abs(want), initial=1e-6, where=np.isfinite(want))
        np.testing.assert_allclose(have, want, rtol=tolerance, atol=tolerance * scale)
