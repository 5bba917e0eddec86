"""Products by native kernels, in a finished execution: lanes are dimensions by then, and gradients summed over them."""

from collections.abc import Mapping

from jax.extend.core import ClosedJaxpr, JaxprEqn, Var

from openipu.compiler import native
from openipu.compiler.passes import native_outer, native_product
from openipu.compiler.passes.jaxprs import has_subjaxprs, map_subjaxprs, with_equations

# The first that has a kernel for a product replaces it.
_FAMILIES = (native_outer, native_product)


def run(closed_jaxpr: ClosedJaxpr) -> ClosedJaxpr:
    """Returns the jaxpr with products replaced, also inside loops and branches; as it is without the library."""
    return closed_jaxpr if native.library() is None else _run(closed_jaxpr)


def _run(closed_jaxpr: ClosedJaxpr) -> ClosedJaxpr:
    jaxpr = closed_jaxpr.jaxpr
    makers = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars if eqn.primitive.name == "transpose"}
    equations = [_replaced(eqn, makers) for eqn in jaxpr.eqns]
    return closed_jaxpr.replace(jaxpr=with_equations(jaxpr, equations, list(jaxpr.outvars)))


def _replaced(eqn: JaxprEqn, makers: Mapping[Var, JaxprEqn]) -> JaxprEqn:
    if eqn.primitive.name == "dot_general":
        return next((call for family in _FAMILIES if (call := family.call(eqn, makers)) is not None), eqn)
    if has_subjaxprs(eqn.params):
        return eqn.replace(params=map_subjaxprs(eqn.params, _run))
    return eqn
