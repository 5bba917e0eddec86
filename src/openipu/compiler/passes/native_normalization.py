"""Batch normalisation by native kernels: a call that has the name of one becomes it."""

import math
from typing import TYPE_CHECKING

import jax
from jax import lax
from jax.extend.core import JaxprEqn

from openipu.compiler import native, normalization
from openipu.compiler.native import normalization as kernels
from openipu.compiler.passes.jaxprs import aval_of
from openipu.compiler.passes.layout import Stored, identity

if TYPE_CHECKING:
    from openipu.compiler.passes.rewriter import Rewriter

# Elements below which a call costs more than it saves.
_LEAST_WORK = 1 << 15


def takes(eqn: JaxprEqn) -> bool:
    """Whether a call is one that a native kernel computes."""
    found = _target(eqn)
    if found is None or native.library() is None:
        return False
    batch = aval_of(eqn.invars[0])
    return batch.dtype == "float32" and batch.size >= _LEAST_WORK


def rule(rewriter: "Rewriter", eqn: JaxprEqn) -> list[Stored] | None:
    """Emits the kernel in whatever order the batch is stored in."""
    found = _target(eqn)
    if found is None or not takes(eqn):
        return None
    target, axis = found
    forward = target == normalization.FORWARD
    # The gradient comes first and is brought into the batch's order, if it is not.
    x = eqn.invars[0 if forward else 1]
    stored = rewriter.stored(x)
    shape, place = aval_of(stored.atom).shape, stored.position[axis]
    batch = kernels.Batch(math.prod(shape[:place]), shape[place], math.prod(shape[place + 1 :]))
    arrays = [rewriter.ordered(atom, stored.order) for atom in eqn.invars[: 1 if forward else 2]]
    others = [rewriter.plain(atom) for atom in eqn.invars[len(arrays) :]]

    def compute(*given: jax.Array) -> list[jax.Array]:
        *operands, epsilon = given
        run = kernels.forward if forward else kernels.backward
        return run(*operands, epsilon=lax.broadcast(epsilon, (batch.channels,)), batch=batch)

    y, *each = rewriter.emit_all(compute, *arrays, *others)
    return [Stored(y, stored.order), *(Stored(atom, identity(1)) for atom in each)]


def _target(eqn: JaxprEqn) -> tuple[str, int] | None:
    if eqn.primitive.name not in ("jit", "pjit"):
        return None
    return normalization.target(eqn.params.get("name", ""))
