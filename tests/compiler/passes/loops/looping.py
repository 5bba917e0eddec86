"""Loops by the kernel and by XLA, side by side."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from openipu.compiler.passes import dead, inline, loops
from tests.compiler.passes.checking import primitives


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    """Random numbers."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def traced(body: Callable, carry: Any, rows: Any) -> ClosedJaxpr:
    """A scan as passes get it."""
    return dead.run(inline.run(jax.make_jaxpr(lambda c, r: lax.scan(body, c, r))(carry, rows)))


def both(body: Callable, carry: Any, rows: Any, tolerance: float = 1e-5) -> None:
    """Asserts that a loop becomes a call of the kernel, and computes what XLA computes."""
    with jax.enable_x64(True):
        before = traced(body, carry, rows)
        after = loops.run(before)
        assert "openipu_loop" in primitives(after)
        assert "scan" not in primitives(after)
        arguments = jax.tree.leaves((carry, rows))
        expected = jax.jit(jaxpr_as_fun(before))(*arguments)
        received = jax.jit(jaxpr_as_fun(after))(*arguments)
    for one, other in zip(expected, received, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        scale = max(1.0, np.abs(np.nan_to_num(np.asarray(one, np.float64), posinf=0, neginf=0)).max())
        np.testing.assert_allclose(other, one, rtol=tolerance, atol=tolerance * scale)
