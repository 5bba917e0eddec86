"""Products by native kernels, in a finished execution: lanes are dimensions by then, and gradients summed over them."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import attrs
import jax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var

from openipu.compiler import native
from openipu.compiler.native.product import Product, implementation, multiply
from openipu.compiler.passes.jaxprs import Atom, aval_of, has_subjaxprs, map_subjaxprs, with_equations

# Multiply-adds that are worth waking oneDNN's threads for: XLA computes smaller products on one core in less time.
_LEAST = 1 << 23
# A matrix with fewer rows, columns or depth is no work for a library of products.
_SMALLEST_SIDE = 8
# Dimensions of a stack of matrices, besides which oneDNN needs two.
_MOST_STACKED = 4


def run(closed_jaxpr: ClosedJaxpr) -> ClosedJaxpr:
    """Returns the jaxpr with large products replaced, also inside loops and branches; as it is without the library."""
    return closed_jaxpr if native.library() is None else _run(closed_jaxpr)


def _run(closed_jaxpr: ClosedJaxpr) -> ClosedJaxpr:
    jaxpr = closed_jaxpr.jaxpr
    makers = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars if eqn.primitive.name == "transpose"}
    equations = []
    for eqn in jaxpr.eqns:
        call = _call(eqn, makers) if eqn.primitive.name == "dot_general" else None
        if call is not None:
            equations.append(call)
        elif has_subjaxprs(eqn.params):
            equations.append(eqn.replace(params=map_subjaxprs(eqn.params, _run)))
        else:
            equations.append(eqn)
    return closed_jaxpr.replace(jaxpr=with_equations(jaxpr, equations, list(jaxpr.outvars)))


@attrs.frozen
class _Operand:
    """An array and how it is read: sizes and steps of the dimensions that the program gives it."""

    atom: Atom
    sizes: tuple[int, ...]
    steps: tuple[int, ...]

    @classmethod
    def of(cls, atom: Atom, makers: Mapping[Var, JaxprEqn]) -> "_Operand":
        """The array that an operand is, or was before it was transposed: strides do that for nothing."""
        maker = None if isinstance(atom, Literal) else makers.get(atom)
        if maker is None:
            sizes = aval_of(atom).shape
            return cls(atom, sizes, tuple(math.prod(sizes[d + 1 :]) for d in range(len(sizes))))
        before, order = cls.of(maker.invars[0], makers), maker.params["permutation"]
        return cls(before.atom, tuple(before.sizes[d] for d in order), tuple(before.steps[d] for d in order))

    def merged(self, dims: Sequence[int]) -> tuple[int, int] | None:
        """The size and step of dimensions as one; None if they do not lie side by side."""
        dims = [d for d in dims if self.sizes[d] > 1]
        for outer, inner in pairwise(dims):
            if self.steps[outer] != self.steps[inner] * self.sizes[inner]:
                return None
        return math.prod(self.sizes[d] for d in dims), self.steps[dims[-1]] if dims else 1

    def sides(self, batch: Sequence[int], summed: Sequence[int]) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """Sizes and steps of what stays and of what is summed over."""
        stays = self.merged([d for d in range(len(self.sizes)) if d not in batch and d not in summed])
        goes = self.merged(summed)
        return None if stays is None or goes is None else (stays, goes)


def _call(eqn: JaxprEqn, makers: Mapping[Var, JaxprEqn]) -> JaxprEqn | None:
    """The native call in place of a product; None where XLA's is as good, or the only one."""
    if any(aval_of(v).dtype != "float32" for v in (*eqn.invars, *eqn.outvars)):
        return None
    left, right = (_Operand.of(atom, makers) for atom in eqn.invars)
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
