"""Compute no part of an activation that nobody reads or that is known to be zero.

Pooling drops rows and columns that fill no window. What a convolution before it computes there is read by nobody, and
the gradient that comes back is zero there; both hold for the layers before as well, as far as their windows reach.
Only the far ends of dimensions are looked at: `extents` finds what is left of every value, `trimming` computes that.
"""

from jax.extend.core import ClosedJaxpr

from openipu.compiler.passes.jaxprs import has_subjaxprs, map_subjaxprs, with_equations
from openipu.compiler.passes.margins import trimming
from openipu.compiler.passes.margins.extents import needed_extents, nonzero_extents


def run(closed_jaxpr: ClosedJaxpr) -> ClosedJaxpr:
    """Returns the jaxpr with smaller convolutions, where there are any to be had; also inside loops and branches."""
    jaxpr = closed_jaxpr.jaxpr
    if any(has_subjaxprs(eqn.params) for eqn in jaxpr.eqns):
        inner = [eqn.replace(params=map_subjaxprs(eqn.params, run)) for eqn in jaxpr.eqns]
        closed_jaxpr = closed_jaxpr.replace(jaxpr=with_equations(jaxpr, inner, list(jaxpr.outvars)))
    nonzero = nonzero_extents(closed_jaxpr.jaxpr)
    needed = needed_extents(closed_jaxpr.jaxpr, nonzero)
    return trimming.run(closed_jaxpr, nonzero, needed)
