"""Cut the jaxpr of a step into the parts of a pipeline: every stage forward, then every stage backward."""

from collections.abc import Iterable

import attrs
from jax.extend import core

from openipu.program.marks import part_of


@attrs.frozen(eq=False)
class Segment:
    """One part of a step.

    Attributes:
      index: its position among the parts; parts only use values of earlier ones.
      closed: its own jaxpr.
      inputs: the variables of the whole jaxpr it takes, in order.
      outputs: the variables of the whole jaxpr it makes that are used outside of it.
    """

    index: int
    closed: core.ClosedJaxpr
    inputs: tuple[core.Var, ...]
    outputs: tuple[core.Var, ...]


def split(closed: core.ClosedJaxpr, parts: int) -> list[Segment]:
    """Cut a jaxpr into parts by the marks of its equations.

    An equation belongs to the part it is marked with, or to a later one if it uses a value of a later one. Equations
    without a mark (loss, metrics, arithmetic on weights) go to the first part that uses them; equations on constants
    alone are cheap and are repeated in every part that uses them.
    """
    jaxpr = closed.jaxpr
    levels, constant = levels_of(jaxpr, parts)
    segments = []
    wanted_outside = {v for v in jaxpr.outvars if isinstance(v, core.Var)}
    for index in range(parts):
        mine = [e for e, level in zip(jaxpr.eqns, levels, strict=True) if level == index]
        equations = [*_needed(mine, jaxpr.eqns, constant), *mine]
        made = {v for e in equations for v in e.outvars}
        inputs = _unique(v for e in equations for v in e.invars if isinstance(v, core.Var) and v not in made)
        own = {v for e in mine for v in e.outvars}
        used = set(wanted_outside)
        for equation, level in zip(jaxpr.eqns, levels, strict=True):
            if level != index:
                used.update(v for v in equation.invars if isinstance(v, core.Var))
        outputs = [v for e in mine for v in e.outvars if v in own & used]
        consts = [v for v in inputs if v in jaxpr.constvars]
        arguments = [v for v in inputs if v not in jaxpr.constvars]
        piece = core.Jaxpr(consts, arguments, outputs, equations, debug_info=jaxpr.debug_info.with_unknown_names())
        values = [closed.consts[jaxpr.constvars.index(v)] for v in consts]
        segments.append(Segment(index, core.ClosedJaxpr(piece, values), tuple(arguments), tuple(outputs)))
    return segments


def levels_of(jaxpr: core.Jaxpr, parts: int) -> tuple[list[int], set[core.Var]]:
    """The part of every equation (-1: on constants alone), and the variables those make."""
    constant: set[core.Var] = set()
    made_in: dict[core.Var, int] = {}
    levels: list[int] = []
    returned = {v for v in jaxpr.outvars if isinstance(v, core.Var)}
    for equation in jaxpr.eqns:
        inputs = [v for v in equation.invars if isinstance(v, core.Var)]
        leaves = any(v in returned for v in equation.outvars)
        if equation.outvars and not leaves and not equation.effects and all(v in constant for v in inputs):
            constant.update(equation.outvars)
            levels.append(-1)
            continue
        level = max([made_in.get(v, 0) for v in inputs if v not in constant], default=0)
        level = min(max(level, part_of(equation, parts) or 0), parts - 1)
        made_in.update(dict.fromkeys(equation.outvars, level))
        levels.append(level)
    return _sink(jaxpr, levels, parts), constant


def _sink(jaxpr: core.Jaxpr, levels: list[int], parts: int) -> list[int]:
    """Move unmarked equations to the first part that uses their values."""
    first_use: dict[core.Var, int] = {}
    for position in reversed(range(len(levels))):
        equation = jaxpr.eqns[position]
        if levels[position] < 0:
            continue
        uses = [first_use[v] for v in equation.outvars if v in first_use]
        if uses and part_of(equation, parts) is None and not equation.effects:
            levels[position] = max(levels[position], min(uses))
        for variable in equation.invars:
            if isinstance(variable, core.Var):
                first_use[variable] = min(first_use.get(variable, levels[position]), levels[position])
    return levels


def _needed(mine: list, equations: list, constant: set[core.Var]) -> list:
    """The equations on constants that `mine` need, in order."""
    wanted = {v for e in mine for v in e.invars if isinstance(v, core.Var) and v in constant}
    found = []
    for equation in reversed(equations):
        if any(v in wanted for v in equation.outvars) and all(v in constant for v in equation.outvars):
            found.append(equation)
            wanted.update(v for v in equation.invars if isinstance(v, core.Var))
    return found[::-1]


def _unique(variables: Iterable[core.Var]) -> list[core.Var]:
    return list(dict.fromkeys(variables))
