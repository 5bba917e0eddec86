"""A jaxpr as a plain list of instructions on numbered values: calls opened, loops marked, unused work dropped."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from jax.extend import core

from openipu.compiler.passes.inline import BODY
from openipu.jax_boundary import name_stack
from openipu.program import marks

# New names for the same memory, on an IPU as under XLA.
ALIASES = frozenset({"reshape", "squeeze", "expand_dims", "stop_gradient", "broadcast_in_dim", "transpose", "slice",
                     "split", "rev", "optimization_barrier", "copy", "copy_p", "pvary",
                     "reduce_precision"})  # fmt: skip
# What a compiler opens, and what only derivatives and memory need besides: the parameter that holds the body.
_CALLS = BODY | {
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
    "remat": "jaxpr",
    "custom_lin": "call_jaxpr",
}


@attrs.frozen(eq=False)
class Value:
    """An array: what it is like, and the one whose memory it is a view of (itself, if it has memory of its own)."""

    number: int
    shape: tuple[int, ...]
    dtype: str
    item: int
    root: int

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes, if it has memory of its own."""
        return self.size * self.item

    @property
    def half(self) -> bool:
        """Whether vectors hold four of its elements: 16 bits or less."""
        return self.item <= 2

    @property
    def floating(self) -> bool:
        """Whether its elements are fractions."""
        return "float" in self.dtype


@attrs.frozen(eq=False)
class Instruction:
    """One equation, wherever it stood.

    Attributes:
      primitive, params: of the equation. "loop" keeps values of a loop alive, before and after its body.
      inputs, outputs: numbers of values; literals are left out.
      literals: how many of its operands are literals.
      level: the part of a pipeline it belongs to; -1 for work on constants, which a compiler does beforehand.
      backward: it belongs to the backward pass.
      keep: it is a checkpoint of recomputation.
      layer: of the user's model; "" for none.
      count: how often it runs.
    """

    primitive: str
    params: dict[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    literals: int
    level: int
    backward: bool
    keep: bool
    layer: str
    count: int


@attrs.frozen(eq=False)
class Flat:
    """A jaxpr, flat.

    Attributes:
      values: all of them, by number.
      inputs, outputs: the jaxpr's; an output that is a literal is None.
      constants: values that are compiled in.
      instructions: in program order.
      unknown_loops: loops whose number of iterations is not known; they are counted once.
    """

    values: list[Value]
    inputs: tuple[int, ...]
    outputs: tuple[int | None, ...]
    constants: tuple[int, ...]
    instructions: list[Instruction]
    unknown_loops: int


def flatten(closed: Any, levels: Sequence[int] | None = None) -> Flat:
    """Flattens a jaxpr.

    Args:
      closed: the jaxpr, open or closed.
      levels: the part of a pipeline of each of its equations, -1 for those on constants; None: all belong to part 0.
    """
    work = _Work()
    jaxpr = getattr(closed, "jaxpr", closed)
    env: dict[Any, int] = {}
    inputs = tuple(work.bind(env, v) for v in jaxpr.invars)
    constants = tuple(work.bind(env, v) for v in jaxpr.constvars)
    for i, equation in enumerate(jaxpr.eqns):
        work.equation(equation, env, _Place(0 if levels is None else levels[i], "", 1))
    outputs = tuple(None if isinstance(v, core.Literal) else env[v] for v in jaxpr.outvars)
    kept = _used(work.instructions, outputs)
    return Flat(work.values, inputs, outputs, (*constants, *work.constants), kept, work.unknown_loops)


@attrs.frozen
class _Place:
    level: int
    stack: str
    count: int


class _Work:
    def __init__(self) -> None:
        self.values: list[Value] = []
        self.instructions: list[Instruction] = []
        self.constants: list[int] = []
        self.unknown_loops = 0
        self._seen: dict[Any, tuple[int, ...]] = {}

    def bind(self, env: dict[Any, int], variable: Any, root: int | None = None) -> int:
        number = len(self.values)
        aval = variable.aval
        shape = tuple(getattr(aval, "shape", ()))
        name, item = _type(aval)
        self.values.append(Value(number, shape, name, item, number if root is None else root))
        env[variable] = number
        return number

    def equation(self, equation: Any, env: dict[Any, int], place: _Place) -> None:
        name = equation.primitive.name
        place = attrs.evolve(place, stack=_joined(place.stack, name_stack(equation)))
        params = equation.params
        if name in _CALLS and _CALLS[name] in params:
            self._open(params[_CALLS[name]], equation.invars, equation.outvars, env, place)
        elif name == "scan":
            self._loop(
                equation, env, place, params["jaxpr"], params["length"], params["num_consts"], params["num_carry"]
            )
        elif name == "while":
            self._while(equation, env, place)
        elif name == "cond":
            self._cond(equation, env, place)
        elif name == "custom_derivatives" or ("jaxpr" in params and name not in _WITH_COMBINER):
            self._open(params["jaxpr"], equation.invars, equation.outvars, env, place)
        else:
            self._plain(equation, env, place)

    def _plain(self, equation: Any, env: dict[Any, int], place: _Place) -> None:
        name = equation.primitive.name
        inputs = tuple(env[v] for v in equation.invars if not isinstance(v, core.Literal))
        key = self._key(equation, env, place)
        if key is not None and key in self._seen:
            env.update(zip(equation.outvars, self._seen[key], strict=True))
            return
        root = self.values[inputs[0]].root if name in ALIASES and inputs else None
        outputs = tuple(self.bind(env, v, root) for v in equation.outvars)
        if key is not None:
            self._seen[key] = outputs
        self._add(name, equation.params, inputs, outputs, len(equation.invars) - len(inputs), place)

    def _add(
        self, name: str, params: dict, inputs: tuple[int, ...], outputs: tuple[int, ...], literals: int, place: _Place
    ) -> None:
        self.instructions.append(
            Instruction(
                name,
                params,
                inputs,
                outputs,
                literals,
                place.level,
                marks.is_backward(place.stack),
                marks.is_kept(place.stack),
                marks.layer_of(place.stack) or "",
                place.count,
            )
        )

    def _key(self, equation: Any, env: dict[Any, int], place: _Place) -> Any:
        """What equal work has in common; None where it cannot be said, or nothing is won."""
        if place.count > 1 or equation.effects or equation.primitive.name.startswith(("random", "rng")):
            return None
        operands = tuple(
            (str(v.val), v.aval.str_short()) if isinstance(v, core.Literal) else env[v] for v in equation.invars
        )
        key = (equation.primitive.name, operands, tuple(equation.params.items()), place.level)
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def _open(self, body: Any, invars: Sequence, outvars: Sequence, env: dict[Any, int], place: _Place) -> None:
        jaxpr = getattr(body, "jaxpr", body)
        inner: dict[Any, int] = {}
        for variable in jaxpr.constvars:
            self.constants.append(self.bind(inner, variable))
        for variable, given in zip(jaxpr.invars, invars, strict=True):
            if isinstance(given, core.Literal):
                self.bind(inner, variable)
            else:
                inner[variable] = env[given]
        for equation in jaxpr.eqns:
            self.equation(equation, inner, place)
        self._results(jaxpr, inner, outvars, env)

    def _results(self, jaxpr: Any, inner: dict[Any, int], outvars: Sequence, env: dict[Any, int]) -> None:
        for made, variable in zip(jaxpr.outvars, outvars, strict=True):
            if isinstance(made, core.Literal):
                self.bind(env, variable)
            else:
                env[variable] = inner[made]

    def _loop(
        self, equation: Any, env: dict[Any, int], place: _Place, body: Any, length: int, consts: int, carry: int
    ) -> None:
        given = tuple(env[v] for v in equation.invars if not isinstance(v, core.Literal))
        results = tuple(self.bind(env, v) for v in equation.outvars)
        # Results are made over the whole loop, and operands stay for all of it.
        self._add("loop", {}, given, results, 0, place)
        jaxpr = getattr(body, "jaxpr", body)
        inner: dict[Any, int] = {}
        for variable in jaxpr.constvars:
            self.constants.append(self.bind(inner, variable))
        for i, (variable, value) in enumerate(zip(jaxpr.invars, equation.invars, strict=True)):
            if i < consts and not isinstance(value, core.Literal):
                inner[variable] = env[value]
            elif i < consts + carry:
                # What is carried lives where the loop's result does.
                self.bind(inner, variable, self.values[results[i - consts]].root if i >= consts else None)
            else:
                root = None if isinstance(value, core.Literal) else self.values[env[value]].root
                self.bind(inner, variable, root)
        within = attrs.evolve(place, count=place.count * max(1, int(length)))
        for one in jaxpr.eqns:
            self.equation(one, inner, within)
        made = tuple(inner[v] for v in jaxpr.outvars if not isinstance(v, core.Literal))
        self._add("loop", {}, (*given, *results, *made), (), 0, place)

    def _while(self, equation: Any, env: dict[Any, int], place: _Place) -> None:
        params = equation.params
        skipped = params["cond_nconsts"]
        length = _trips(equation)
        if length is None:
            self.unknown_loops += 1
        consts = params["body_nconsts"]
        rest = _Rest(equation.invars[skipped:], equation.outvars)
        self._loop(rest, env, place, params["body_jaxpr"], length or 1, consts, len(rest.invars) - consts)

    def _cond(self, equation: Any, env: dict[Any, int], place: _Place) -> None:
        """The branch with most equations: which one is taken is not known."""
        branch = max(equation.params["branches"], key=lambda b: len(getattr(b, "jaxpr", b).eqns))
        self._open(branch, equation.invars[1:], equation.outvars, env, place)


@attrs.frozen
class _Rest:
    """A loop's operands without those of its condition."""

    invars: Sequence
    outvars: Sequence


# Their jaxpr says how two elements become one; it is not work of its own.
_WITH_COMBINER = frozenset({"reduce", "reduce_window", "scatter", "scatter-add", "scatter_add", "scatter_mul",
                            "scatter_min", "scatter_max", "sort", "select_and_scatter", "select_and_scatter_add",
                            "argmax", "argmin"})  # fmt: skip


def _trips(equation: Any) -> int | None:
    """How often a loop runs that counts from one literal to another; None for any other."""
    params = equation.params
    condition, body = params["cond_jaxpr"].jaxpr, params["body_jaxpr"].jaxpr
    if len(condition.eqns) != 1 or condition.eqns[0].primitive.name != "lt":
        return None
    counter, limit = condition.eqns[0].invars
    if isinstance(counter, core.Literal) or counter not in condition.invars:
        return None
    end = _literal(limit, condition, equation.invars[: params["cond_nconsts"]], equation)
    position = condition.invars.index(counter) - params["cond_nconsts"]
    start = equation.invars[params["cond_nconsts"] + params["body_nconsts"] + position]
    if end is None or not isinstance(start, core.Literal):
        return None
    result = body.outvars[position]
    made = [e for e in body.eqns if result in e.outvars]
    if len(made) != 1 or made[0].primitive.name != "add":
        return None
    steps = [v.val for v in made[0].invars if isinstance(v, core.Literal)]
    return math.ceil((end - int(start.val)) / int(steps[0])) if len(steps) == 1 and int(steps[0]) > 0 else None


def _literal(limit: Any, condition: Any, given: Sequence, equation: Any) -> int | None:
    if isinstance(limit, core.Literal):
        return int(limit.val)
    if limit in condition.invars:
        index = condition.invars.index(limit)
        skipped = equation.params["cond_nconsts"]
        # A limit that is carried along is the one it started with, if the body leaves it as it is.
        if index >= skipped:
            body = equation.params["body_jaxpr"].jaxpr
            if body.outvars[index - skipped] is not body.invars[equation.params["body_nconsts"] + index - skipped]:
                return None
            value = equation.invars[equation.params["body_nconsts"] + index]
        else:
            value = given[index]
        return int(value.val) if isinstance(value, core.Literal) else None
    return None


def _joined(outer: str, inner: str) -> str:
    return f"{outer}/{inner}" if outer and inner else outer or inner


def _used(instructions: list[Instruction], outputs: Sequence[int | None]) -> list[Instruction]:
    """The instructions whose results somebody uses."""
    wanted = {number for number in outputs if number is not None}
    kept = []
    for one in reversed(instructions):
        if not one.outputs or wanted.intersection(one.outputs) or one.primitive in _EFFECTS:
            wanted.update(one.inputs)
            kept.append(one)
    return kept[::-1]


_EFFECTS = frozenset({"debug_callback", "io_callback", "outside_call", "debug_print"})


def _type(aval: Any) -> tuple[str, int]:
    return _described(getattr(aval, "dtype", None))


@functools.cache
def _described(given: Any) -> tuple[str, int]:
    try:
        dtype = np.dtype(given)
    except TypeError:
        # Random keys have a type of JAX's own.
        return str(given), 8
    # A 64-bit value would have 32 bits on an IPU, which has no other; a boolean has a byte.
    return dtype.name, min(dtype.itemsize, 4)
