"""Floating-point exceptions: the first operation that makes an infinity or a NaN of ordinary numbers is remembered.

A program becomes one with a local value more, the number of that operation, and a finished value more, the same number
at the end of an execution. What is one operation to the user may be many equations: those of one name scope are looked
at together, by what they take from others and what others take from them.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import jax
import jax.numpy as jnp
from jax.extend import core

from openipu.compiler.key import digest
from openipu.compiler.passes import inline
from openipu.program import Program, Slot

SLOT = Slot("floating-point exceptions", (), "int32")
_UPDATE = -1
_ORDERINGS = ("lt", "le", "gt", "ge")


@attrs.frozen
class Site:
    """Where an exception happened.

    Attributes:
      operation: the primitive operations that make it up; none for a weight update.
      scope: the names of scopes it was traced in.
      update: whether it was noticed in the weights that an update left.
    """

    operation: str
    scope: str
    update: bool = False

    @property
    def backward(self) -> bool:
        """Whether it belongs to a backward pass that JAX or TensorFlow derived."""
        return "transpose(" in self.scope or "gradient_tape" in self.scope


@attrs.frozen(eq=False)
class _Group:
    """Equations of one scope: a jaxpr, the variables it takes and those it makes for others."""

    scope: str
    closed: core.ClosedJaxpr
    inputs: tuple[core.Var, ...]
    outputs: tuple[core.Var, ...]


@attrs.frozen
class Traps:
    """Which invalid numbers are exceptions.

    Attributes:
      nan: an operation gives a NaN that was given none, or compares one.
      infinity: an operation gives an infinity that was given ordinary numbers.
    """

    nan: bool = False
    infinity: bool = False

    def __bool__(self) -> bool:
        return self.nan or self.infinity


# Invalid numbers pass.
NONE = Traps()


def trapping(program: Program, traps: Traps, watched: Sequence[int]) -> Program:
    """The program, noticing exceptions.

    Args:
      program: what is to be watched.
      traps: what is an exception.
      watched: the indices of shared values that updates must leave finite.
    """

    def step(shared: Any, local: Any, batch: Any, key: jax.Array):  # noqa: ANN202
        *own, first = local
        arguments = (list(shared), own, list(batch), key)
        traced, shape = jax.make_jaxpr(program.step, return_shape=True)(*arguments)
        flat, number = _evaluate(inline.run(traced), traps, jax.tree.leaves(arguments))
        gradients, own, outputs = jax.tree.unflatten(jax.tree.structure(shape), flat)
        # The first one stays. The old value is only looked at here: stages of a pipeline need not wait for it.
        return gradients, [*own, jnp.where(first == 0, number, first)], outputs

    def update(shared: Any, local: Any, gradients: Any):  # noqa: ANN202
        assert program.update is not None
        return program.update(shared, local[:-1], gradients)

    def finish(shared: Any, local: Any) -> list[jax.Array]:
        *own, number = local
        results = list(program.finish(shared, own)) if program.finish is not None else []
        broken = _broken([shared[i] for i in watched], traps)
        return [*results, jnp.where((number == 0) & broken, _UPDATE, number)]

    return attrs.evolve(
        program,
        local=(*program.local, SLOT),
        step=step,
        update=update if program.update is not None else None,
        finish=finish,
        identity=None if program.identity is None else digest(repr(traps), program.identity, repr(list(watched))),
    )


def site(program: Program, number: int) -> Site:
    """What a number stands for.

    Args:
      program: as it was before it was made to notice exceptions.
      number: the value that was left.
    """
    if number == _UPDATE:
        return Site("", "", update=True)
    if program.prepare is not None:
        program.prepare()
    slots = [[s.abstract for s in group] for group in (program.shared, program.local, program.batch)]
    with jax.enable_x64(True):
        traced = inline.run(jax.make_jaxpr(program.step)(*slots, jax.random.key(0)))
    group = next(itertools.islice(_groups(traced), number - 1, None))
    names = dict.fromkeys(equation.primitive.name for equation in group.closed.jaxpr.eqns)
    return Site(", ".join(names), group.scope)


def _evaluate(
    closed: core.ClosedJaxpr, traps: Traps, arguments: Sequence[jax.Array]
) -> tuple[list[jax.Array], jax.Array]:
    """The results, and the number of the first group that made an exception; 0 if none did."""
    jaxpr = closed.jaxpr
    env: dict[Any, Any] = dict(zip(jaxpr.invars, arguments, strict=True))
    env |= dict(zip(jaxpr.constvars, closed.consts, strict=True))
    found = jnp.zeros((), jnp.int32)
    for index, group in enumerate(_groups(closed)):
        given = [env[v] for v in group.inputs]
        made = core.jaxpr_as_fun(group.closed)(*given)
        env.update(zip(group.outputs, made, strict=True))
        literals = [v.val for e in group.closed.jaxpr.eqns for v in e.invars if isinstance(v, core.Literal)]
        happened = _exception(group, traps, [*given, *literals], made)
        if happened is not None:
            found = jnp.where((found == 0) & happened, index + 1, found).astype(jnp.int32)
    return [v.val if isinstance(v, core.Literal) else env[v] for v in jaxpr.outvars], found


def _exception(group: _Group, traps: Traps, given: Sequence[Any], made: Sequence[Any]) -> jax.Array | None:
    """Whether a group made an infinity or a NaN of ordinary numbers, or compared a NaN; None if it cannot."""
    results, inputs = _floats(made), _floats(given)
    compares = any(e.primitive.name in _ORDERINGS for e in group.closed.jaxpr.eqns)
    if not results:
        return _any(jnp.isnan, inputs) if compares and inputs and traps.nan else None
    happened = jnp.zeros((), bool)
    if traps.nan:
        happened |= _any(jnp.isnan, results) & ~_any(jnp.isnan, inputs)
    if traps.infinity:
        happened |= _any(jnp.isinf, results) & ~_any(lambda x: ~jnp.isfinite(x), inputs)
    return happened


def _broken(values: Sequence[jax.Array], traps: Traps) -> jax.Array:
    found = jnp.zeros((), bool)
    if traps.nan:
        found |= _any(jnp.isnan, values)
    if traps.infinity:
        found |= _any(jnp.isinf, values)
    return found


def _groups(closed: core.ClosedJaxpr) -> Iterator[_Group]:
    """The equations in order, those of one scope together."""
    jaxpr = closed.jaxpr
    runs: list[tuple[str, list]] = []
    for equation in jaxpr.eqns:
        scope = str(equation.source_info.name_stack)
        if runs and scope and runs[-1][0] == scope:
            runs[-1][1].append(equation)
        else:
            runs.append((scope, [equation]))
    last_use = {v: len(runs) for v in jaxpr.outvars if isinstance(v, core.Var)}
    for index, (_, equations) in enumerate(runs):
        for variable in (v for e in equations for v in e.invars if isinstance(v, core.Var)):
            last_use[variable] = max(index, last_use.get(variable, 0))
    for index, (scope, equations) in enumerate(runs):
        made = {v for e in equations for v in e.outvars}
        inputs = dict.fromkeys(v for e in equations for v in e.invars if isinstance(v, core.Var) and v not in made)
        outputs = [v for e in equations for v in e.outvars if last_use.get(v, -1) > index]
        info = jaxpr.debug_info.with_unknown_names()
        piece = core.Jaxpr([], list(inputs), outputs, equations, debug_info=info)
        yield _Group(scope, core.ClosedJaxpr(piece, []), tuple(inputs), tuple(outputs))


def _floats(values: Sequence[Any]) -> list[jax.Array]:
    return [jnp.asarray(v) for v in values if jnp.issubdtype(jnp.result_type(v), jnp.floating)]


def _any(test: Any, values: Sequence[jax.Array]) -> jax.Array:
    found = jnp.zeros((), bool)
    for value in values:
        found = found | jnp.any(test(value))
    return found
