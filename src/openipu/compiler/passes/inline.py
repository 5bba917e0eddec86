"""Open nested calls (`jit`, custom derivative rules, closed calls) so that other passes see one flat program."""

from collections.abc import Callable

from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var

from openipu.compiler.passes.jaxprs import Atom, has_subjaxprs, map_subjaxprs, read, with_equations
from openipu.jax_boundary import fresh

# The parameter that holds the body, for every primitive whose meaning is just "run the body".
BODY = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}


def run(closed_jaxpr: ClosedJaxpr, keep: Callable[[JaxprEqn], bool] = lambda eqn: False) -> ClosedJaxpr:
    """Returns the jaxpr with calls replaced by their bodies, also inside loops and branches.

    Args:
      closed_jaxpr: what to open.
      keep: whether a call stays as it is.
    """
    jaxpr = closed_jaxpr.jaxpr
    equations: list[JaxprEqn] = []
    constvars, consts = list(jaxpr.constvars), list(closed_jaxpr.consts)
    env: dict[Var, Atom] = {}

    def splice(eqns: list[JaxprEqn], env: dict[Var, Atom], rename: bool) -> None:
        for eqn in eqns:
            invars = [read(env, atom) for atom in eqn.invars]
            body = None if keep(eqn) else _body(eqn)
            if body is not None:
                inner: dict[Var, Atom] = dict(zip(body.jaxpr.invars, invars, strict=True))
                for var, value in zip(body.jaxpr.constvars, body.consts, strict=True):
                    inner[var] = fresh(var.aval)
                    constvars.append(inner[var])
                    consts.append(value)
                # The same body object may be called twice, so each opening needs variables of its own.
                splice(body.jaxpr.eqns, inner, rename=True)
                env.update(zip(eqn.outvars, (read(inner, atom) for atom in body.jaxpr.outvars), strict=True))
                continue
            outvars = [fresh(var.aval) for var in eqn.outvars] if rename else list(eqn.outvars)
            env.update(zip(eqn.outvars, outvars, strict=True))
            params = eqn.params
            if has_subjaxprs(params):
                params = map_subjaxprs(params, lambda inner: run(inner, keep))
            equations.append(eqn.replace(invars=invars, outvars=outvars, params=params))

    splice(jaxpr.eqns, env, rename=False)
    outvars = [read(env, atom) for atom in jaxpr.outvars]
    return ClosedJaxpr(with_equations(jaxpr.replace(constvars=constvars), equations, outvars), consts)


def _body(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """Returns the body of a call that may be opened, else None."""
    name = BODY.get(eqn.primitive.name)
    if name is None or eqn.effects:
        return None
    body = eqn.params.get(name)
    if body is None:
        return None
    closed = body if isinstance(body, ClosedJaxpr) else ClosedJaxpr(body, ())
    # A call that pins shardings or fixes inputs means more than its body.
    pinned = [*eqn.params.get("in_shardings", ()), *eqn.params.get("out_shardings", ())]
    if any(not _unspecified(sharding) for sharding in pinned):
        return None
    return closed if all(not isinstance(var, Literal) for var in closed.jaxpr.invars) else None


def _unspecified(sharding: object) -> bool:
    return sharding is None or type(sharding).__name__ == "UnspecifiedValue"
