"""Drop equations whose results nobody reads, in the step and in the loops and branches inside it."""

from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var

from openipu.compiler.passes.jaxprs import has_subjaxprs, map_subjaxprs, with_equations


def run(closed_jaxpr: ClosedJaxpr) -> ClosedJaxpr:
    """Returns the jaxpr without dead equations; equations with effects always live."""
    jaxpr = closed_jaxpr.jaxpr
    live: set[Var] = {atom for atom in jaxpr.outvars if not isinstance(atom, Literal)}
    kept: list[JaxprEqn] = []
    for eqn in reversed(jaxpr.eqns):
        if not eqn.effects and live.isdisjoint(eqn.outvars):
            continue
        live.update(atom for atom in eqn.invars if not isinstance(atom, Literal))
        if has_subjaxprs(eqn.params):
            eqn = eqn.replace(params=map_subjaxprs(eqn.params, run))
        kept.append(eqn)
    return closed_jaxpr.replace(jaxpr=with_equations(jaxpr, kept[::-1], list(jaxpr.outvars)))
