"""Large products by oneDNN."""

from collections.abc import Mapping

import jax
from jax.extend.core import JaxprEqn, Var

from openipu.compiler import native
from openipu.compiler.native.product import Product, implementation, multiply
from openipu.compiler.passes.jaxprs import aval_of
from openipu.compiler.passes.operands import Operand

# Multiply-adds that are worth waking oneDNN's threads for: XLA computes smaller products on one core in less time.
_LEAST = 1 << 23
# A matrix with fewer rows, columns or depth is no work for a library of products.
_SMALLEST_SIDE = 8
# Dimensions of a stack of matrices, besides which oneDNN needs two.
_MOST_STACKED = 4


def call(eqn: JaxprEqn, makers: Mapping[Var, JaxprEqn]) -> JaxprEqn | None:
    """The native call in place of a product; None where XLA's is as good, or the only one."""
    if any(aval_of(v).dtype != "float32" for v in (*eqn.invars, *eqn.outvars)):
        return None
    left, right = (Operand.of(atom, makers) for atom in eqn.invars)
    (left_sum, right_sum), (left_batch, right_batch) = eqn.params["dimension_numbers"]
    left_sides, right_sides = left.sides(left_batch, left_sum), right.sides(right_batch, right_sum)
    if left_sides is None or right_sides is None or len(left_batch) > _MOST_STACKED:
        return None
    (rows, row_step), (depth, left_depth_step) = left_sides
    (columns, column_step), (_, right_depth_step) = right_sides
    stack = tuple(left.sizes[d] for d in left_batch)
    product = Product(
        left=(*stack, rows, depth),
        left_steps=(*(left.steps[d] for d in left_batch), row_step, left_depth_step),
        right=(*stack, depth, columns),
        right_steps=(*(right.steps[d] for d in right_batch), right_depth_step, column_step),
        result=aval_of(eqn.outvars[0]).shape,
    )
    library = native.library()
    if library is None or product.multiplications < _LEAST or min(rows, columns, depth) < _SMALLEST_SIDE:
        return None
    found = implementation(library, product)
    if not found or "ref" in found:
        return None
    avals = [jax.ShapeDtypeStruct(aval_of(o.atom).shape, aval_of(o.atom).dtype) for o in (left, right)]
    (made,) = jax.make_jaxpr(lambda a, b: multiply(a, b, product))(*avals).jaxpr.eqns
    return made.replace(invars=[left.atom, right.atom], outvars=eqn.outvars, source_info=eqn.source_info)
