"""A loop of a program as one call of the kernel."""

from collections.abc import Sequence

import attrs
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Var

from openipu.compiler.native.loop import run
from openipu.compiler.passes import dead, inline
from openipu.compiler.passes.jaxprs import Atom, aval_of, read, traced
from openipu.compiler.passes.loops import fusion, preparation, schedule
from openipu.compiler.passes.loops.encoding import Source, encode
from openipu.compiler.passes.loops.operations import Elementwise, Instruction, Operation, Product
from openipu.compiler.passes.loops.schedule import part_by_part
from openipu.compiler.passes.loops.simplifying import simplified
from openipu.compiler.passes.loops.translation import Translation
from openipu.compiler.passes.loops.views import NotInLoops, View
from openipu.jax_boundary import fresh

# Multiply-adds of a step that are worth more than one thread: XLA runs smaller ones on one as fast.
_LEAST_MULTIPLICATIONS = 3 << 19
# Multiply-adds of a step beyond which XLA's products are as good, and threads that wait for each other no matter.
_MOST_MULTIPLICATIONS = 1 << 26
# Of a program of one step: threads that stay together need something to stay for.
_FEWEST_PRODUCTS = 2


@attrs.frozen
class _Body:
    """The body of a loop: what it is given, and what becomes of what it makes.

    Attributes:
      jaxpr: its equations.
      given: sources of its inputs, in their order.
      leaves: for each result that leaves the loop, the value and where it is kept.
      carried: which inputs the first results replace in the next step.
    """

    jaxpr: Jaxpr
    given: dict[Var, Source]
    leaves: list[tuple[Atom, Source]]
    carried: list[Var]


def of_scan(eqn: JaxprEqn) -> list[JaxprEqn]:
    """A scan as a call of the kernel, and what prepares it.

    Raises:
      NotInLoops: the kernel does not have something of it, or is not better.
    """
    params = eqn.params
    closed = dead.run(inline.run(params["jaxpr"]))
    if params["reverse"] or closed.consts:
        raise NotInLoops("a loop that goes backwards, or has constants that are arrays")
    jaxpr, constants, state = simplified(closed.jaxpr), params["num_consts"], params["num_carry"]
    given, leaves, carried, results = {}, [], [], []
    # What no step changes is one more constant, and its own result.
    same = [atom is var for atom, var in zip(jaxpr.outvars[:state], jaxpr.invars[constants:], strict=False)]
    for number, var in enumerate(jaxpr.invars):
        place = number - constants
        if place < 0 or (place < state and same[place]):
            given[var] = Source("given", number)
        elif place < state:
            given[var] = Source("carried", number, len(carried))
            leaves.append((jaxpr.outvars[place], Source("kept", 0, len(carried))))
            carried.append(var)
            results.append(eqn.outvars[place])
        else:
            given[var] = Source("taken", number, 0, _bytes(var))
    for atom, var in zip(jaxpr.outvars[state:], eqn.outvars[state:], strict=True):
        leaves.append((atom, Source("made", 0, len(results), _bytes(atom))))
        results.append(var)
    called = _call(eqn.invars, results, _Body(jaxpr, given, leaves, carried), params["length"])
    unchanged = {var: eqn.invars[constants + number] for number, var in enumerate(eqn.outvars[:state]) if same[number]}
    return called + [_identity(atom, var) for var, atom in unchanged.items()]


def of_step(closed: ClosedJaxpr) -> ClosedJaxpr:
    """A program without loops as one step of the kernel.

    Raises:
      NotInLoops: the kernel does not have something of it, or is not better.
    """
    closed = dead.run(inline.run(closed))
    jaxpr = simplified(closed.jaxpr)
    if closed.consts:
        raise NotInLoops("constants that are arrays")
    if sum(eqn.primitive.name == "dot_general" for eqn in jaxpr.eqns) < _FEWEST_PRODUCTS:
        raise NotInLoops("a product alone has kernels of its own")
    # Of the only step: nothing is the same in others.
    given = {var: Source("carried", number, -1) for number, var in enumerate(jaxpr.invars)}
    leaves = [(atom, Source("kept", 0, number)) for number, atom in enumerate(jaxpr.outvars)]
    body = _Body(jaxpr, given, leaves, [])
    results = [fresh(aval_of(atom)) for atom in jaxpr.outvars]
    equations = _call(jaxpr.invars, results, body, 1)
    return closed.replace(jaxpr=jaxpr.replace(eqns=equations, outvars=results))


def _call(arguments: Sequence[Atom], results: Sequence[Var], body: _Body, steps: int) -> list[JaxprEqn]:
    env: dict[Var, Atom] = dict(zip(body.given, arguments, strict=True))
    before = preparation.prepare(body.jaxpr, body.given, [atom for atom, _ in body.leaves], steps, env)
    given = body.given | {
        var: Source("taken", len(arguments) + number, 0, _bytes(var))
        if var in before.every_step
        else Source("given", len(arguments) + number)
        for number, var in enumerate(before.read)
    }
    translation = Translation(body.jaxpr.replace(eqns=before.inside, outvars=[atom for atom, _ in body.leaves]))
    work = sum(o.multiplications for o in translation.operations if isinstance(o, Product))
    if not _LEAST_MULTIPLICATIONS <= work <= _MOST_MULTIPLICATIONS:
        raise NotInLoops(f"{work} multiplications")
    placing = _Placing(translation, body)
    found = schedule.phases(placing.operations, placing.overwritten)
    program = encode(steps, found, given, placing.writes)
    types = [aval_of(var) for var in results]
    made = traced(lambda *arrays: run(arrays, types, program), *arguments, *(read(env, var) for var in before.read))
    (call,) = made.equations
    return [*before.equations, call.replace(outvars=list(results))]


def _identity(atom: Atom, var: Var) -> JaxprEqn:
    (equation,) = traced(lambda x: lax.optimization_barrier(x), atom).equations
    return equation.replace(outvars=[var])


class _Placing:
    """Where what leaves a loop is kept.

    Attributes:
      operations: all of them, also those that only copy.
      writes: places of values that leave the loop.
      overwritten: of each operation, values of the step before in whose places it writes.
    """

    def __init__(self, translation: Translation, body: _Body) -> None:
        self.writes: dict[Var, Source] = {}
        self.overwritten: dict[Operation, list[Var]] = {}
        views = [translation.view(atom) for atom, _ in body.leaves]
        results = {view.base for view in views if isinstance(view.base, Var)}
        self.operations = fusion.fused(translation.operations, results)
        self._makers = {var: o for o in self.operations for var in o.kept}
        copies: list[Operation] = []
        for number, (view, (_, place)) in enumerate(zip(views, body.leaves, strict=True)):
            old = body.carried[number] if number < len(body.carried) else None
            if not self._made_in_place(view, old, place):
                if view.base in body.carried:
                    raise NotInLoops("values that change places")
                copies.append(self._copy(view, old, place))
        self.operations = [*self.operations, *copies]

    def _made_in_place(self, view: View, old: Var | None, place: Source) -> bool:
        """Has a value made where it is kept, if that is possible."""
        var = view.base
        maker = self._makers.get(var) if isinstance(var, Var) else None
        if maker is None or not isinstance(var, Var) or var in self.writes or not view.is_all_of(var):
            return False
        if old is not None:
            readers = [o for o in self.operations if o is not maker and old in fusion.reads(o)]
            itself = old not in fusion.reads(maker) or (isinstance(maker, Elementwise) and part_by_part(maker, old))
            if not itself or any(self._comes_after(reader, maker) for reader in readers):
                return False
            self.overwritten.setdefault(maker, []).append(old)
        self.writes[var] = place
        return True

    def _copy(self, view: View, old: Var | None, place: Source) -> Operation:
        var = fresh(ShapedArray(view.sizes, view.dtype))
        operation = Elementwise(view.sizes, (Instruction("copy", (view,), var),), (var,))
        self.writes[var] = place
        self.overwritten[operation] = [] if old is None else [old]
        return operation

    def _comes_after(self, operation: Operation, other: Operation) -> bool:
        """Whether an operation has to wait for another."""
        waiting, seen = [operation], set()
        while waiting:
            one = waiting.pop()
            if one is other:
                return True
            if one in seen:
                continue
            seen.add(one)
            waiting.extend(self._makers[var] for var in fusion.reads(one) if var in self._makers)
            for var in self.overwritten.get(one, ()):
                waiting.extend(o for o in self.operations if o is not one and var in fusion.reads(o))
        return False


def _bytes(atom: Atom) -> int:
    return aval_of(atom).size * aval_of(atom).dtype.itemsize
