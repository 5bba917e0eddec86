"""What XLA computes before a loop: what is the same in every step, and keys, random bits and indices of all steps."""

import math
from collections.abc import Mapping, Sequence

import attrs
import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun

from openipu.compiler.passes.jaxprs import Atom, aval_of, read, traced
from openipu.compiler.passes.loops.encoding import Source
from openipu.compiler.passes.loops.translation import VIEWING
from openipu.compiler.passes.loops.views import NotInLoops
from openipu.jax_boundary import fresh

# What is made for all steps at once may take so many bytes.
_MOST_BYTES = 64 << 20


@attrs.frozen
class Preparation:
    """A body cut in two.

    Attributes:
      equations: what comes before the loop.
      inside: what stays in it.
      read: values of the first part that the second one reads.
      every_step: those of them that have a row for every step.
    """

    equations: list[JaxprEqn]
    inside: list[JaxprEqn]
    read: list[Var]
    every_step: frozenset[Var]


def prepare(
    jaxpr: Jaxpr, given: Mapping[Var, Source], leaves: Sequence[Atom], steps: int, env: dict[Var, Atom]
) -> Preparation:
    """Takes out of a body what does not depend on what steps change.

    Args:
      jaxpr: the body.
      given: sources of its inputs.
      leaves: what leaves the loop.
      steps: how many there are.
      env: what the inputs are outside; what is read of the equations before is added.
    """
    steady = _depending(jaxpr.eqns, {var for var, source in given.items() if source.kind == "given"})
    fed = {var for var, source in given.items() if source.kind in ("given", "taken")}
    ahead = [e for e in _depending(jaxpr.eqns, fed) if e not in steady]
    # To look at a value in another way takes no time, and numbers are computed as well in the loop.
    ahead = _with_their_inputs(ahead, [e for e in ahead if not _is_of_numbers(e)])
    outside = {atom for e in ahead for atom in e.invars if isinstance(atom, Var)}
    computed = [e for e in steady if e.primitive.name not in VIEWING or not outside.isdisjoint(e.outvars)]
    steady = _with_their_inputs(steady, computed)
    before = {id(e) for e in (*steady, *ahead)}
    inside = [e for e in jaxpr.eqns if id(e) not in before or e.primitive.name in VIEWING]
    inside = _needed(inside, leaves)
    wanted = {atom for e in inside for atom in e.invars if isinstance(atom, Var)}
    wanted |= {atom for atom in leaves if isinstance(atom, Var)}
    made_inside = {var for e in inside for var in e.outvars}

    def read_of(equations: Sequence[JaxprEqn]) -> list[Var]:
        return [var for e in equations for var in e.outvars if var in wanted and var not in made_inside]

    equations = _renamed(steady, env)
    rows = read_of(ahead)
    if rows:
        equations += _of_all_steps(jaxpr.replace(eqns=ahead, outvars=rows), given, steps, env)
    return Preparation(equations, inside, [*read_of(steady), *rows], frozenset(rows))


def _depending(equations: Sequence[JaxprEqn], known: set[Var]) -> list[JaxprEqn]:
    """The equations that depend on nothing but known values."""
    known, found = set(known), []
    for equation in equations:
        if not equation.effects and all(isinstance(atom, Literal) or atom in known for atom in equation.invars):
            known.update(equation.outvars)
            found.append(equation)
    return found


def _with_their_inputs(equations: Sequence[JaxprEqn], some: Sequence[JaxprEqn]) -> list[JaxprEqn]:
    """Some of the equations, and those that make what they read."""
    chosen, wanted, found = {id(e) for e in some}, set(), []
    for equation in reversed(equations):
        if id(equation) in chosen or not wanted.isdisjoint(equation.outvars):
            found.append(equation)
            wanted.update(atom for atom in equation.invars if isinstance(atom, Var))
    return found[::-1]


def _is_of_numbers(equation: JaxprEqn) -> bool:
    """Whether an equation makes, or picks, floating-point numbers of others."""
    atoms = (*equation.invars, *equation.outvars)
    if any(jnp.issubdtype(aval_of(atom).dtype, jax.dtypes.prng_key) for atom in atoms):
        return False
    return (
        any(jnp.issubdtype(aval_of(atom).dtype, jnp.floating) for atom in atoms) or equation.primitive.name in VIEWING
    )


def _needed(equations: Sequence[JaxprEqn], leaves: Sequence[Atom]) -> list[JaxprEqn]:
    """The equations without those whose results nobody reads."""
    wanted = {atom for atom in leaves if isinstance(atom, Var)}
    found = []
    for equation in reversed(equations):
        if equation.effects or not wanted.isdisjoint(equation.outvars):
            found.append(equation)
            wanted.update(atom for atom in equation.invars if isinstance(atom, Var))
    return found[::-1]


def _renamed(equations: Sequence[JaxprEqn], env: dict[Var, Atom]) -> list[JaxprEqn]:
    """The same outside of the loop, with variables of their own."""
    found = []
    for equation in equations:
        outvars = [fresh(aval_of(var)) for var in equation.outvars]
        found.append(equation.replace(invars=[read(env, atom) for atom in equation.invars], outvars=outvars))
        env.update(zip(equation.outvars, outvars, strict=True))
    return found


def _of_all_steps(body: Jaxpr, given: Mapping[Var, Source], steps: int, env: dict[Var, Atom]) -> list[JaxprEqn]:
    """What equations make of every step, computed for all steps side by side."""
    types = [aval_of(var) for e in body.eqns for var in e.outvars]
    if steps * sum(math.prod(t.shape) * t.dtype.itemsize for t in types) > _MOST_BYTES:
        raise NotInLoops("too many random numbers or indices to make them for all steps at once")
    made = {var for e in body.eqns for var in e.outvars}
    inputs = list(dict.fromkeys(a for e in body.eqns for a in e.invars if isinstance(a, Var) and a not in made))
    axes = [0 if var in given and given[var].kind == "taken" else None for var in inputs]
    info = body.debug_info.with_unknown_names()
    step = jaxpr_as_fun(ClosedJaxpr(body.replace(constvars=[], invars=inputs, debug_info=info), ()))
    done = traced(jax.vmap(step, in_axes=axes, axis_size=steps), *(read(env, var) for var in inputs))
    if done.consts:
        raise NotInLoops("constants that are arrays")
    env.update(zip((var for var in body.outvars if isinstance(var, Var)), done.results, strict=True))
    return done.equations
