"""Loops of small steps as programs of a team of threads.

XLA runs a step operation by operation, and wakes threads for each that is worth it. In a small step that takes longer
than the work, and what one core wrote another one reads. Here the whole loop becomes one call of a native kernel
(`native/kernels/loop.cc`), whose threads stay together from the first step to the last:

1. `translation` finds for every equation of the body an operation that the kernel has (`operations`), on `views` of
   values; layouts cost nothing;
2. `fusion` puts elementwise operations together;
3. `assembly` decides what is computed in place, `schedule` what is done side by side, and what alone;
4. `encoding` writes it down as numbers.

A loop with anything that the kernel does not have is left to XLA.
"""

import logging

from jax.extend.core import ClosedJaxpr, JaxprEqn

from openipu.compiler.passes.jaxprs import has_subjaxprs, map_subjaxprs, with_equations
from openipu.compiler.passes.loops import assembly
from openipu.compiler.passes.loops.views import NotInLoops

log = logging.getLogger("openipu.native")

__all__ = ["run"]


def run(closed_jaxpr: ClosedJaxpr) -> ClosedJaxpr:
    """Returns a finished execution with loops of small steps by the kernel, as it is where there are none."""
    if not any(has_subjaxprs(eqn.params) for eqn in closed_jaxpr.jaxpr.eqns):
        try:
            return assembly.of_step(closed_jaxpr)
        except NotInLoops as reason:
            log.debug("The step is left to XLA: %s.", reason)
            return closed_jaxpr
    return _inside(closed_jaxpr)


def _inside(closed_jaxpr: ClosedJaxpr) -> ClosedJaxpr:
    jaxpr = closed_jaxpr.jaxpr
    equations = [new for eqn in jaxpr.eqns for new in _replaced(eqn)]
    return closed_jaxpr.replace(jaxpr=with_equations(jaxpr, equations, list(jaxpr.outvars)))


def _replaced(eqn: JaxprEqn) -> list[JaxprEqn]:
    if eqn.primitive.name == "scan":
        try:
            return assembly.of_scan(eqn)
        except NotInLoops as reason:
            log.debug("A loop is left to XLA: %s.", reason)
    if has_subjaxprs(eqn.params):
        return [eqn.replace(params=map_subjaxprs(eqn.params, _inside))]
    return [eqn]
