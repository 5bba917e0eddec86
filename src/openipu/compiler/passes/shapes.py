"""Layout rules: how equations that compute nothing hard take over the dimension order of their inputs."""

import math
from typing import TYPE_CHECKING

from jax import lax
from jax.extend.core import JaxprEqn

from openipu.compiler.passes.jaxprs import aval_of
from openipu.compiler.passes.layout import Order, Stored, drop, identity

if TYPE_CHECKING:
    from openipu.compiler.passes.rewriter import Rewriter

# fmt: off
ELEMENTWISE = (
    "abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan",
    "atan2", "atanh", "cbrt", "ceil", "clamp", "convert_element_type", "copy", "copy_p", "cos",
    "cosh", "div", "eq", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1",
    "floor", "ge", "gt", "integer_pow", "is_finite", "le", "lgamma", "log", "log1p",
    "logistic", "lt", "max", "min", "mul", "ne", "neg", "nextafter", "not",
    "or", "pow", "reduce_precision", "rem", "round", "rsqrt", "select_n", "shift_left", "shift_right_arithmetic",
    "shift_right_logical", "sign", "sin", "sinh", "sqrt", "square", "stop_gradient", "sub", "tan",
    "tanh", "xor",
)
# fmt: on


def _elementwise(rewriter: "Rewriter", eqn: JaxprEqn) -> list[Stored] | None:
    rank = len(aval_of(eqn.outvars[0]).shape)
    if any(len(aval_of(atom).shape) not in (rank, 0) for atom in eqn.invars):
        return None
    order = _leading_order(rewriter, eqn)
    if order is None:
        return None
    invars = [rewriter.ordered(atom, order) if aval_of(atom).shape else atom for atom in eqn.invars]
    return rewriter.emit_like(eqn, invars, order)


def _leading_order(rewriter: "Rewriter", eqn: JaxprEqn) -> Order | None:
    """Returns the order most inputs of full shape are stored in, or None if that is the program's own."""
    votes: dict[Order, int] = {}
    shape = aval_of(eqn.outvars[0]).shape
    for atom in eqn.invars:
        # Inputs may have dimensions of size one where others are longer: they are small and follow.
        if aval_of(atom).shape == shape and shape and not rewriter.is_broadcast(atom):
            order = rewriter.stored(atom).order
            # Of two orders the permuted one wins: its value came from a kernel and will meet others like it.
            votes[order] = votes.get(order, 0) + 1 + 8 * rewriter.stored(atom).permuted
    if not votes:
        return None
    best = max(votes, key=lambda order: votes[order])
    return None if best == identity(len(best)) else best


def _broadcast(rewriter: "Rewriter", eqn: JaxprEqn) -> None:
    if len(eqn.invars) == 1 and eqn.params.get("sharding") is None:
        rewriter.note_broadcast(eqn)


def _reduce(rewriter: "Rewriter", eqn: JaxprEqn) -> list[Stored] | None:
    source = rewriter.stored(eqn.invars[0])
    if not source.permuted or len(eqn.invars) != 1:
        return None
    axes = tuple(sorted(source.position[axis] for axis in eqn.params["axes"]))
    return rewriter.emit_like(eqn, [source.atom], drop(source.order, set(eqn.params["axes"])), axes=axes)


def _transpose(rewriter: "Rewriter", eqn: JaxprEqn) -> list[Stored] | None:
    source = rewriter.stored(eqn.invars[0])
    if not source.permuted:
        return None
    where = {dim: number for number, dim in enumerate(eqn.params["permutation"])}
    return [Stored(source.atom, tuple(where[dim] for dim in source.order))]


def _squeeze(rewriter: "Rewriter", eqn: JaxprEqn) -> list[Stored] | None:
    source = rewriter.stored(eqn.invars[0])
    if not source.permuted:
        return None
    dims = set(eqn.params["dimensions"])
    dimensions = tuple(sorted(source.position[dim] for dim in dims))
    return rewriter.emit_like(eqn, [source.atom], drop(source.order, dims), dimensions=dimensions)


def _reverse(rewriter: "Rewriter", eqn: JaxprEqn) -> list[Stored] | None:
    source = rewriter.stored(eqn.invars[0])
    if not source.permuted:
        return None
    dimensions = tuple(source.position[dim] for dim in eqn.params["dimensions"])
    return rewriter.emit_like(eqn, [source.atom], source.order, dimensions=dimensions)


def _pad(rewriter: "Rewriter", eqn: JaxprEqn) -> list[Stored] | None:
    source = rewriter.stored(eqn.invars[0])
    if not source.permuted:
        return None
    config = tuple(eqn.params["padding_config"][dim] for dim in source.order)
    return rewriter.emit_like(eqn, [source.atom, eqn.invars[1]], source.order, padding_config=config)


def _slice(rewriter: "Rewriter", eqn: JaxprEqn) -> list[Stored] | None:
    source = rewriter.stored(eqn.invars[0])
    if not source.permuted:
        return None
    params = {
        name: None if eqn.params[name] is None else tuple(eqn.params[name][dim] for dim in source.order)
        for name in ("start_indices", "limit_indices", "strides")
    }
    return rewriter.emit_like(eqn, [source.atom], source.order, **params)


def _concatenate(rewriter: "Rewriter", eqn: JaxprEqn) -> list[Stored] | None:
    largest = max((rewriter.stored(atom) for atom in eqn.invars), key=lambda stored: stored.size)
    if not largest.permuted:
        return None
    invars = [rewriter.ordered(atom, largest.order) for atom in eqn.invars]
    return rewriter.emit_like(eqn, invars, largest.order, dimension=largest.position[eqn.params["dimension"]])


def _dot_general(rewriter: "Rewriter", eqn: JaxprEqn) -> list[Stored] | None:
    lhs, rhs = (rewriter.stored(atom) for atom in eqn.invars)
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = eqn.params["dimension_numbers"]
    if lhs.permuted and _is_matrix_product(rhs, rhs_contract, lhs, lhs_contract):
        # The other way round it is a plain product of matrices as they are stored.
        swapped = ((rhs.position[rhs_contract[0]],), (lhs.position[lhs_contract[0]],)), ((), ())
        return rewriter.emit_like(eqn, [rhs.atom, lhs.atom], (1, 0), dimension_numbers=swapped)
    if lhs.permuted and lhs.order[-1] not in lhs_contract and len(lhs.order) - 1 in lhs_contract:
        # XLA's fast matrix product wants the left operand's summed dimension last; a transpose is the lesser cost.
        lhs = Stored(rewriter.plain(eqn.invars[0]), identity(len(lhs.order)))
    if not lhs.permuted and not rhs.permuted:
        return None
    numbers = (
        (tuple(lhs.position[d] for d in lhs_contract), tuple(rhs.position[d] for d in rhs_contract)),
        (tuple(lhs.position[d] for d in lhs_batch), tuple(rhs.position[d] for d in rhs_batch)),
    )
    lhs_free = drop(lhs.order, {*lhs_contract, *lhs_batch})
    rhs_free = drop(rhs.order, {*rhs_contract, *rhs_batch})
    first, second = len(lhs_batch), len(lhs_batch) + len(lhs_free)
    order = (*range(first), *(first + d for d in lhs_free), *(second + d for d in rhs_free))
    return rewriter.emit_like(eqn, [lhs.atom, rhs.atom], order, dimension_numbers=numbers)


def _is_matrix_product(lhs: Stored, lhs_contract: Order, rhs: Stored, rhs_contract: Order) -> bool:
    """Whether two matrices, as they are stored, are rows and columns: the product that XLA computes fastest."""
    if len(lhs.order) != 2 or len(rhs.order) != 2 or len(lhs_contract) != 1:
        return False
    return lhs.order[1] == lhs_contract[0] and rhs.order[0] == rhs_contract[0]


def _reshape(rewriter: "Rewriter", eqn: JaxprEqn) -> list[Stored] | None:
    source = rewriter.stored(eqn.invars[0])
    if not source.permuted or eqn.params.get("dimensions") is not None:
        return None
    groups = _reshape_groups(source.shape, aval_of(eqn.outvars[0]).shape)
    if groups is None:
        return None
    # Merged dimensions must lie side by side; each group goes where its largest member is stored now.
    position = source.position

    def place(group: tuple[list[int], list[int]]) -> int:
        return max((source.shape[dim], position[dim]) for dim in group[0])[1] if group[0] else -1

    ranked = sorted(groups, key=place)
    before = tuple(dim for group in ranked for dim in group[0])
    after = tuple(dim for group in ranked for dim in group[1])
    if before != source.order:
        # Something has to be transposed here, so let it be the end of the kernel's order.
        return None
    shape = tuple(aval_of(eqn.outvars[0]).shape[dim] for dim in after)
    return [Stored(rewriter.emit(lambda x: lax.reshape(x, shape), source.atom), after)]


def _reshape_groups(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[list[int], list[int]]] | None:
    """Returns the smallest runs of dimensions (before, after) that a reshape maps to each other."""
    if math.prod(old) == 0:
        return None
    groups, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        group = ([], [])
        left = right = 1
        while True:
            if left <= right and i < len(old) and (left < right or not group[0]):
                left *= old[i]
                group[0].append(i)
                i += 1
            elif j < len(new) and (right < left or not group[1]):
                right *= new[j]
                group[1].append(j)
                j += 1
            else:
                break
        groups.append(group)
    return groups


RULES = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(
        ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "argmax", "argmin"),
        _reduce,
    ),
    "broadcast_in_dim": _broadcast,
    "concatenate": _concatenate,
    "dot_general": _dot_general,
    "pad": _pad,
    "reshape": _reshape,
    "rev": _reverse,
    "slice": _slice,
    "squeeze": _squeeze,
    "transpose": _transpose,
}
