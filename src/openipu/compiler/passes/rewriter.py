"""The one walk over a jaxpr in which kernel rules and layout rules replace equations."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var

from openipu.compiler.passes import convolution, named_calls, native_fused, pooling, shapes
from openipu.compiler.passes.jaxprs import Atom, aval_of, has_subjaxprs, map_subjaxprs, traced, with_equations
from openipu.compiler.passes.layout import Order, Stored, identity
from openipu.jax_boundary import fresh

Rule = Callable[["Rewriter", JaxprEqn], list[Stored] | None]

# A rule returns how the equation's results are stored after emitting what computes them, or None to leave it alone.
_RULES: dict[str, Rule] = {**shapes.RULES, **pooling.RULES, **convolution.RULES, **named_calls.RULES}


def run(closed_jaxpr: ClosedJaxpr, lanes: int = 1) -> ClosedJaxpr:
    """Returns the jaxpr, of which so many run side by side, with every rule applied, also inside loops and branches."""
    return Rewriter(closed_jaxpr, lanes).run()


class Rewriter:
    """The state of one walk: equations emitted so far, and how each of the program's values is stored.

    Attributes:
      lanes: how many of these programs run side by side.
    """

    def __init__(self, closed_jaxpr: ClosedJaxpr, lanes: int = 1) -> None:
        self.lanes = lanes
        self._source = closed_jaxpr
        self._equations: list[JaxprEqn] = []
        self._constvars = list(closed_jaxpr.jaxpr.constvars)
        self._consts = list(closed_jaxpr.consts)
        self._stored: dict[Var, Stored] = {}
        self._broadcasts: dict[Var, JaxprEqn] = {}
        self._ordered: dict[tuple[Var, Order], Atom] = {}
        self._calls: dict[Var, native_fused.Call] = {}
        read_by = [*(atom for eqn in closed_jaxpr.jaxpr.eqns for atom in eqn.invars), *closed_jaxpr.jaxpr.outvars]
        self._uses = Counter(atom for atom in read_by if isinstance(atom, Var))
        self._makers = {var: eqn for eqn in closed_jaxpr.jaxpr.eqns for var in eqn.outvars}

    def run(self) -> ClosedJaxpr:
        """Walks all equations and returns the new jaxpr."""
        jaxpr = self._source.jaxpr
        for eqn in jaxpr.eqns:
            rules = (rules.get(eqn.primitive.name) for rules in (native_fused.FIRST, _RULES))
            results = next((made for rule in rules if rule and (made := rule(self, eqn)) is not None), None)
            if results is None:
                self._keep(eqn)
            else:
                self._stored.update(zip(eqn.outvars, results, strict=True))
        outvars = [self.plain(atom) for atom in jaxpr.outvars]
        done = with_equations(jaxpr.replace(constvars=self._constvars), self._equations, outvars)
        return ClosedJaxpr(done, self._consts)

    def stored(self, atom: Atom) -> Stored:
        """Returns how a value of the program is stored."""
        if isinstance(atom, Var) and atom in self._stored:
            return self._stored[atom]
        return Stored(atom, identity(len(aval_of(atom).shape)))

    def maker(self, atom: Atom) -> JaxprEqn | None:
        """Returns the program's equation that makes a value; None for an argument or a constant."""
        return None if isinstance(atom, Literal) else self._makers.get(atom)

    def call(self, atom: Atom) -> native_fused.Call | None:
        """The native call that makes a value, if only one equation reads it: that may become part of the call."""
        return self._calls.get(atom) if isinstance(atom, Var) and self._uses[atom] == 1 else None

    def note_call(self, var: Var, call: native_fused.Call) -> None:
        """Remembers the native call that makes a value."""
        self._calls[var] = call

    def plain(self, atom: Atom) -> Atom:
        """Returns a program value stored as the program says."""
        return self.ordered(atom, identity(len(aval_of(atom).shape)))

    def ordered(self, atom: Atom, order: Order) -> Atom:
        """Returns a program value stored in `order`, transposing at most once for each order."""
        stored = self.stored(atom)
        if stored.order == order:
            return stored.atom
        assert isinstance(atom, Var)
        key = (atom, order)
        if key not in self._ordered:
            broadcast = self._broadcasts.get(atom)
            if broadcast is not None:
                self._ordered[key] = self._broadcast(broadcast, order)
            else:
                permutation = tuple(stored.position[dim] for dim in order)
                product = None if stored.permuted else self._turned_product(atom, order)
                self._ordered[key] = product or self.emit(lambda x: lax.transpose(x, permutation), stored.atom)
        return self._ordered[key]

    def emit(self, function: Callable[..., Any], *atoms: Atom) -> Atom:
        """Adds the equations of `function(*atoms)`, which takes arrays and returns one, and returns its result."""
        (result,) = self.emit_all(function, *atoms)
        return result

    def emit_all(self, function: Callable[..., Any], *atoms: Atom) -> list[Atom]:
        """Adds the equations of `function(*atoms)`, which takes and returns arrays, and returns its results."""
        made = traced(function, *atoms)
        self._equations += made.equations
        self._constvars += made.constvars
        self._consts += made.consts
        return made.results

    def emit_like(self, eqn: JaxprEqn, invars: Sequence[Atom], order: Order, **params: Any) -> list[Stored]:
        """Adds `eqn` with other inputs and parameters; its one result is stored in `order`."""
        aval = aval_of(eqn.outvars[0])
        out = fresh(aval.update(shape=tuple(aval.shape[dim] for dim in order)))
        self._equations.append(eqn.replace(invars=list(invars), outvars=[out], params={**eqn.params, **params}))
        return [Stored(out, order)]

    def note_broadcast(self, eqn: JaxprEqn) -> None:
        """Remembers that a result is a broadcast, which can be made in any order for nothing."""
        self._broadcasts[eqn.outvars[0]] = eqn

    def is_broadcast(self, atom: Atom) -> bool:
        """Whether a value can be had in any order for nothing."""
        return isinstance(atom, Literal) or atom in self._broadcasts or not aval_of(atom).shape

    def _broadcast(self, eqn: JaxprEqn, order: Order) -> Atom:
        position = {dim: number for number, dim in enumerate(order)}
        dims = eqn.params["broadcast_dimensions"]
        operand_order = tuple(sorted(range(len(dims)), key=lambda number: position[dims[number]]))
        operand = self.ordered(eqn.invars[0], operand_order)
        shape = tuple(eqn.params["shape"][dim] for dim in order)
        where = tuple(position[dims[number]] for number in operand_order)
        return self.emit(lambda x: lax.broadcast_in_dim(x, shape, where), operand)

    def _turned_product(self, atom: Var, order: Order) -> Atom | None:
        """A product of two matrices with its rows moved last, made by changing sides: half the time of a transpose."""
        shape = aval_of(atom).shape
        maker = self.maker(atom)
        if maker is not None and maker.primitive.name == "reshape" and maker.params["dimensions"] is None:
            maker = self.maker(maker.invars[0])
        if maker is None or maker.primitive.name != "dot_general" or order != (*range(1, len(shape)), 0):
            return None
        sides = [self.stored(side) for side in maker.invars]
        is_of_matrices = all(len(side.order) == 2 and not side.permuted for side in sides)
        if not is_of_matrices or aval_of(maker.outvars[0]).shape[:1] != shape[:1]:
            return None
        left, right = maker.params["dimension_numbers"][0]
        params = {**maker.params, "dimension_numbers": ((right, left), ((), ()))}
        turned = lambda a, b: lax.reshape(lax.dot_general_p.bind(b, a, **params), (*shape[1:], shape[0]))  # noqa: E731
        return self.emit(turned, *(side.atom for side in sides))

    def _keep(self, eqn: JaxprEqn) -> None:
        params = (
            map_subjaxprs(eqn.params, lambda inner: run(inner, self.lanes)) if has_subjaxprs(eqn.params) else eqn.params
        )
        self._equations.append(eqn.replace(invars=[self.plain(atom) for atom in eqn.invars], params=params))
