"""Small tools on jaxprs that all passes share: substitution, sub-jaxprs, copies with other equations."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

Atom = Var | Literal


def aval_of(atom: Any) -> ShapedArray:
    """The type of an array in a jaxpr; every value in our programs is one."""
    return atom.aval


def read(env: Mapping[Var, Atom], atom: Atom) -> Atom:
    """Returns what an atom stands for after substitution; literals and unmapped variables stand for themselves."""
    return atom if isinstance(atom, Literal) else env.get(atom, atom)


def with_equations(jaxpr: Jaxpr, equations: list[JaxprEqn], outvars: list[Atom]) -> Jaxpr:
    """Returns `jaxpr` computing `outvars` by `equations` instead."""
    return jaxpr.replace(eqns=equations, outvars=outvars)


class Traced(NamedTuple):
    """What a function is in a jaxpr: its equations, what they return, and constants that they read."""

    equations: list[JaxprEqn]
    results: list[Atom]
    constvars: list[Var]
    consts: list[Any]


def traced(function: Callable[..., Any], *atoms: Atom) -> Traced:
    """The equations of `function(*atoms)`, which takes and returns arrays."""
    avals = [jax.ShapeDtypeStruct(aval_of(atom).shape, aval_of(atom).dtype) for atom in atoms]
    # A function of its own, since JAX remembers what it traced: two results would share their variables.
    made = jax.make_jaxpr(lambda *arrays: function(*arrays))(*avals)
    env: dict[Var, Atom] = dict(zip(made.jaxpr.invars, atoms, strict=True))
    equations = [eqn.replace(invars=[read(env, atom) for atom in eqn.invars]) for eqn in made.jaxpr.eqns]
    results = [read(env, atom) for atom in made.jaxpr.outvars]
    return Traced(equations, results, list(made.jaxpr.constvars), list(made.consts))


def map_subjaxprs(params: Mapping[str, Any], run: Callable[[ClosedJaxpr], ClosedJaxpr]) -> dict[str, Any]:
    """Returns equation parameters with `run` applied to every jaxpr in them (loop bodies, branches, calls)."""

    def visit(value: Any) -> Any:
        if isinstance(value, ClosedJaxpr):
            return run(value)
        if isinstance(value, Jaxpr):
            # An open jaxpr has no place for constants, so it keeps only results that need none.
            done = run(ClosedJaxpr(value, ()))
            return value if done.consts else done.jaxpr
        if isinstance(value, tuple) and any(isinstance(item, ClosedJaxpr | Jaxpr) for item in value):
            return tuple(visit(item) for item in value)
        return value

    return {name: visit(value) for name, value in params.items()}


def subjaxprs(params: Mapping[str, Any]) -> list[ClosedJaxpr]:
    """The jaxprs that an equation holds (loop bodies, branches, calls)."""
    found: list[ClosedJaxpr] = []

    def visit(inner: ClosedJaxpr) -> ClosedJaxpr:
        found.append(inner)
        return inner

    map_subjaxprs(params, visit)
    return found


def has_subjaxprs(params: Mapping[str, Any]) -> bool:
    """Whether an equation holds other jaxprs."""
    return bool(subjaxprs(params))
