"""Products that sum over many rows by a native kernel: gradients of layers over time.

XLA transposes an operand first, which takes longer than the product where the result is small.
"""

from collections.abc import Mapping, Sequence

import jax
from jax.extend.core import JaxprEqn, Var

from openipu.compiler.native.outer import Sums, compute
from openipu.compiler.passes.jaxprs import aval_of
from openipu.compiler.passes.operands import Operand

# Multiply-adds that are worth a call.
_LEAST = 1 << 20
# With fewer rows than this, or than columns, the result is too large a part of the work.
_FEWEST_ROWS = 256
# A narrower operand is no tile.
_NARROWEST = 8


def call(eqn: JaxprEqn, makers: Mapping[Var, JaxprEqn]) -> JaxprEqn | None:
    """The native call in place of a product; None where it is not one of these."""
    (left_sum, right_sum), (stack, _) = eqn.params["dimension_numbers"]
    if stack or any(aval_of(v).dtype != "float32" for v in (*eqn.invars, *eqn.outvars)):
        return None
    # As they were before they were transposed, if their rows are in the same order then.
    for left_makers in (makers, {}):
        for right_makers in (makers, {}):
            left, right = Operand.of(eqn.invars[0], left_makers), Operand.of(eqn.invars[1], right_makers)
            sums = _sums(left, right, left_sum, right_sum, aval_of(eqn.outvars[0]).shape)
            if sums is not None:
                return _made(eqn, left, right, sums)
    return None


def _sums(
    left: Operand, right: Operand, left_sum: Sequence[int], right_sum: Sequence[int], result: tuple[int, ...]
) -> Sums | None:
    order = sorted(range(len(left_sum)), key=lambda i: -left.steps[left_sum[i]])
    left_sides = left.sides((), [left_sum[i] for i in order])
    right_sides = right.sides((), [right_sum[i] for i in order])
    if left_sides is None or right_sides is None:
        return None
    (lefts, left_near), (rows, left_step) = left_sides
    (rights, right_near), (_, right_step) = right_sides
    least, most = sorted((lefts, rights))
    if left_near != 1 or right_near != 1 or least < _NARROWEST or rows < _fewest(most):
        return None
    # Vectors run over the wider of the two.
    if lefts <= rights:
        return Sums(rows, lefts, rights, left_step, right_step, False, result)
    return Sums(rows, rights, lefts, right_step, left_step, True, result)


def _fewest(columns: int) -> int:
    return max(_FEWEST_ROWS, columns) if _FEWEST_ROWS else 0


def _made(eqn: JaxprEqn, left: Operand, right: Operand, sums: Sums) -> JaxprEqn | None:
    if sums.multiplications < _LEAST:
        return None
    atoms = [right.atom, left.atom] if sums.turned else [left.atom, right.atom]
    avals = [jax.ShapeDtypeStruct(aval_of(a).shape, aval_of(a).dtype) for a in atoms]
    (made,) = jax.make_jaxpr(lambda a, b: compute(a, b, sums))(*avals).jaxpr.eqns
    return made.replace(invars=atoms, outvars=eqn.outvars, source_info=eqn.source_info)
