"""Which part of every value of a program is not known to be zero, and which part anybody reads.

An extent is how much of a dimension, from its beginning, is left.
"""

from collections.abc import Callable, Mapping

from jax.extend.core import Jaxpr, JaxprEqn, Literal, Var

from openipu.compiler.passes.jaxprs import Atom, aval_of
from openipu.compiler.passes.margins.windows import convolution_space, pooling_sides, scattered_sides
from openipu.compiler.passes.shapes import ELEMENTWISE

Extents = tuple[int, ...]
# Of those values of which not everything is left.
Known = Mapping[Var, Extents]

# Zeros in, zeros out.
_LIKE_THEIR_OPERANDS = ("add", "add_any", "sub", "neg", "copy", "copy_p", "convert_element_type")


def nonzero_extents(jaxpr: Jaxpr) -> Known:
    """How much of values is not known to be zero."""
    known: dict[Var, Extents] = {}
    for eqn in jaxpr.eqns:
        rule = _NONZERO.get(eqn.primitive.name)
        made = rule(eqn, [extents_of(known, atom) for atom in eqn.invars]) if rule else None
        if made is not None and made != aval_of(eqn.outvars[0]).shape:
            known[eqn.outvars[0]] = made
    return known


def needed_extents(jaxpr: Jaxpr, nonzero: Known) -> Known:
    """How much of values is read."""
    needed: dict[Var, Extents] = {}

    def read(atom: Atom, extents: Extents) -> None:
        if isinstance(atom, Var):
            needed[atom] = larger(needed.get(atom, (0,) * len(extents)), extents)

    for atom in jaxpr.outvars:
        read(atom, aval_of(atom).shape)
    for eqn in reversed(jaxpr.eqns):
        rule = _NEEDED.get(eqn.primitive.name)
        made = None
        if rule is not None:
            kept = kept_extents(needed, nonzero, eqn.outvars[0])
            made = rule(eqn, kept, [extents_of(nonzero, atom) for atom in eqn.invars])
        for atom, extents in zip(eqn.invars, made or [aval_of(a).shape for a in eqn.invars], strict=True):
            read(atom, extents)
    return {var: extents for var, extents in needed.items() if extents != aval_of(var).shape}


def extents_of(known: Known, atom: Atom) -> Extents:
    """How much of a value is left: all of it if nothing else is known."""
    return aval_of(atom).shape if isinstance(atom, Literal) else known.get(atom, aval_of(atom).shape)


def kept_extents(needed: Known, nonzero: Known, atom: Atom) -> Extents:
    """How much of a value is to be computed."""
    wanted, left = extents_of(needed, atom), extents_of(nonzero, atom)
    # Nothing at all would be no array.
    return wanted if 0 in left else tuple(map(min, wanted, left))


def larger(one: Extents, other: Extents) -> Extents:
    """What holds both."""
    return tuple(map(max, one, other))


def is_elementwise(eqn: JaxprEqn) -> bool:
    """Whether each result is made of what stands at the same place in the operands, or of single numbers."""
    shapes = {aval_of(atom).shape for atom in eqn.invars if aval_of(atom).shape}
    return eqn.primitive.name in ELEMENTWISE and shapes == {aval_of(eqn.outvars[0]).shape}


# How much of a result is not zero: (equation, the same of its operands) -> extents, None where nothing is known.
def _zeros_broadcast(eqn: JaxprEqn, operands: list[Extents]) -> Extents | None:
    value = eqn.invars[0]
    is_zero = isinstance(value, Literal) and value.val == 0
    return (0,) * len(aval_of(eqn.outvars[0]).shape) if is_zero else None


def _zeros_around(eqn: JaxprEqn, operands: list[Extents]) -> Extents | None:
    value, config = eqn.invars[1], eqn.params["padding_config"]
    plain = all((low, interior) == (0, 0) and high >= 0 for low, high, interior in config)
    return operands[0] if plain and isinstance(value, Literal) and value.val == 0 else None


def _of_all_operands(eqn: JaxprEqn, operands: list[Extents]) -> Extents | None:
    if not is_elementwise(eqn) or not all(aval_of(atom).shape for atom in eqn.invars):
        return None
    made = operands[0]
    for other in operands[1:]:
        made = larger(made, other)
    return made


def _of_all_cases(eqn: JaxprEqn, operands: list[Extents]) -> Extents | None:
    made = operands[1]
    for other in operands[2:]:
        made = larger(made, other)
    return made


def _convolved(eqn: JaxprEqn, operands: list[Extents]) -> Extents | None:
    made = list(aval_of(eqn.outvars[0]).shape)
    if 0 in (*operands[0], *operands[1]):
        return None
    for space in convolution_space(eqn):
        # Zeros that its own padding and dilation make are few, and another shape is no gain.
        if operands[0][space.left] < space.side.size:
            made[space.out] = min(made[space.out], space.side.touching(operands[0][space.left]))
    return tuple(made) if 0 not in made else None


def _scattered(eqn: JaxprEqn, operands: list[Extents]) -> Extents | None:
    sides = scattered_sides(eqn)
    if sides is None or 0 in operands[0]:
        return None
    return tuple(side.read(windows, size) for (side, size), windows in zip(sides, operands[0], strict=True))


_NONZERO: dict[str, Callable[[JaxprEqn, list[Extents]], Extents | None]] = {
    "broadcast_in_dim": _zeros_broadcast,
    "pad": _zeros_around,
    **dict.fromkeys(_LIKE_THEIR_OPERANDS, _of_all_operands),
    "select_n": _of_all_cases,
    "conv_general_dilated": _convolved,
    "select_and_scatter_add": _scattered,
}


# How much of the operands is read: (equation, how much of its result is computed, how much of the operands is not
# zero) -> extents of each, None for all.
def _by_elements(eqn: JaxprEqn, kept: Extents, operands: list[Extents]) -> list[Extents] | None:
    return [kept if aval_of(atom).shape else () for atom in eqn.invars] if is_elementwise(eqn) else None


def _by_broadcast(eqn: JaxprEqn, kept: Extents, operands: list[Extents]) -> list[Extents] | None:
    if len(eqn.invars) > 1:
        return None
    shape, dims = aval_of(eqn.invars[0]).shape, eqn.params["broadcast_dimensions"]
    return [tuple(min(n, kept[dim]) for n, dim in zip(shape, dims, strict=True))]


def _by_windows(eqn: JaxprEqn, kept: Extents, operands: list[Extents]) -> list[Extents] | None:
    sides = pooling_sides(eqn)
    if sides is None or 0 in kept:
        return None
    return [tuple(side.read(windows, size) for (side, size), windows in zip(sides, kept, strict=True))]


def _by_convolution(eqn: JaxprEqn, kept: Extents, operands: list[Extents]) -> list[Extents] | None:
    left, right = (list(aval_of(atom).shape) for atom in eqn.invars)
    if 0 in (*kept, *operands[0], *operands[1]):
        return None
    for space in convolution_space(eqn):
        left[space.left] = space.side.taken(kept[space.out], operands[1][space.right])
    return [tuple(left), tuple(right)] if 0 not in left else None


def _by_scattering(eqn: JaxprEqn, kept: Extents, operands: list[Extents]) -> list[Extents] | None:
    covered = _scattered(eqn, operands)
    return [aval_of(eqn.invars[0]).shape, covered] if covered is not None else None


_NEEDED: dict[str, Callable[[JaxprEqn, Extents, list[Extents]], list[Extents] | None]] = {
    **dict.fromkeys(ELEMENTWISE, _by_elements),
    "broadcast_in_dim": _by_broadcast,
    **dict.fromkeys(("reduce_window_max", "reduce_window_min", "reduce_window_sum"), _by_windows),
    "conv_general_dilated": _by_convolution,
    "select_and_scatter_add": _by_scattering,
}
