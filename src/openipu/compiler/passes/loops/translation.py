"""From the body of a loop to the operations of the kernel, one for each equation."""

from collections.abc import Callable, Sequence

import attrs
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Jaxpr, JaxprEqn, Literal, Var

from openipu.compiler.passes.jaxprs import Atom, aval_of
from openipu.compiler.passes.loops.operations import (
    Elementwise,
    Instruction,
    Joined,
    Operation,
    Parts,
    Product,
    Reduction,
    Rows,
)
from openipu.compiler.passes.loops.schedule import LEAST, MOST_THREADS
from openipu.compiler.passes.loops.views import NotInLoops, View
from openipu.jax_boundary import fresh

# What threads may share out of a sum.
_DEEP = 128
TYPES = ("float32", "int32", "uint32", "int64", "uint64", "bool", "float64")

# Primitives that are one elementwise instruction.
_SIMPLE = {
    "add": "add", "add_any": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "rem": "remainder",
    "max": "maximum", "min": "minimum", "pow": "power", "and": "and", "or": "or", "xor": "xor", "not": "not",
    "shift_left": "shift_left", "shift_right_logical": "shift_right_logical",
    "shift_right_arithmetic": "shift_right_arithmetic", "eq": "equal", "ne": "not_equal", "lt": "less",
    "le": "less_equal", "gt": "greater", "ge": "greater_equal", "neg": "negate", "abs": "absolute", "sign": "sign",
    "exp": "exponential", "expm1": "exponential_less_one", "log": "logarithm", "log1p": "logarithm_of_one_more",
    "tanh": "tangent", "logistic": "logistic", "sqrt": "root", "rsqrt": "reciprocal_root", "erf": "error_function",
    "erfc": "error_function_rest", "floor": "floor", "ceil": "ceiling", "is_finite": "is_finite",
    "sin": "sine", "cos": "cosine",
    "convert_element_type": "convert", "select_n": "select",
}  # fmt: skip
_REDUCTIONS = {
    "reduce_sum": "sum", "reduce_max": "most", "reduce_min": "least", "reduce_prod": "times", "reduce_or": "most",
    "reduce_and": "least",
}  # fmt: skip
# Functions that the kernel has for floating-point numbers alone, and of these only for float32.
_OF_FLOATS = frozenset({
    "power", "exponential", "exponential_less_one", "logarithm", "logarithm_of_one_more", "tangent", "logistic", "root",
    "reciprocal_root", "error_function", "error_function_rest", "floor", "ceiling", "is_finite", "sine", "cosine",
})  # fmt: skip
_OF_SINGLES = frozenset({"error_function", "error_function_rest"})
_OF_BOOLS = frozenset({"and", "or", "xor", "not", "equal", "not_equal", "maximum", "minimum", "select", "convert"})
_OF_INTEGERS = frozenset({"and", "or", "xor", "not", "shift_left", "shift_right_logical", "shift_right_arithmetic"})


class Translation:
    """The operations of a body, and where its values are found.

    Attributes:
      operations: one for each equation that computes something, in order.
    """

    def __init__(self, jaxpr: Jaxpr) -> None:
        """Translates all equations.

        Raises:
          NotInLoops: one of them has no operation.
        """
        self.operations: list[Operation] = []
        self._turned = _only_turned(jaxpr)
        self._views: dict[Var, View] = {}
        for atom in jaxpr.outvars:
            _check_type(atom)
        for eqn in jaxpr.eqns:
            self._equation(eqn)

    def view(self, atom: Atom) -> View:
        """Where a value of the body is."""
        if isinstance(atom, Literal):
            return View.whole(atom)
        return self._views.get(atom) or View.whole(atom)

    def copied(self, view: View) -> View:
        """The same numbers, stored in order."""
        var = fresh(ShapedArray(view.sizes, view.dtype))
        self.operations.append(Elementwise(view.sizes, (Instruction("copy", (view,), var),), (var,)))
        return View.whole(var)

    def _equation(self, eqn: JaxprEqn) -> None:
        name = eqn.primitive.name
        if eqn.effects:
            raise NotInLoops(f"{name} with effects")
        for atom in (*eqn.invars, *eqn.outvars):
            _check_type(atom)
        if name in VIEWING:
            self._views[eqn.outvars[0]] = VIEWING[name](self, eqn)
        elif name in _REDUCTIONS:
            self._reduction(eqn)
        elif name in _OTHERS:
            _OTHERS[name](self, eqn)
        elif name in _SIMPLE:
            self._simple(eqn)
        else:
            raise NotInLoops(name)

    def _emit(self, name: str, operands: Sequence[View], result: Var) -> None:
        """An elementwise instruction on operands of equal sizes; of some, dimensions may be missing or of size 1."""
        sizes = tuple(aval_of(result).shape)
        operands = [o if o.sizes == sizes else o.broadcast(sizes, range(len(o.sizes))) for o in operands]
        read = tuple(o.base if isinstance(o.base, Var) and o == View.whole(o.base) else o for o in operands)
        self.operations.append(Elementwise(sizes, (Instruction(name, read, result),), (result,)))

    def _simple(self, eqn: JaxprEqn) -> None:
        name, operands = _SIMPLE[eqn.primitive.name], [self.view(atom) for atom in eqn.invars]
        dtype = operands[-1].dtype
        known = name not in _OF_FLOATS or dtype == "float32" or (dtype == "float64" and name not in _OF_SINGLES)
        if dtype == "bool":
            known = name in _OF_BOOLS
        elif name in _OF_INTEGERS:
            known = dtype not in ("float32", "float64")
        if name == "select":
            known = operands[0].dtype == "bool" and len(operands) == 3
        if not known or (name != "convert" and len({o.dtype for o in operands[name == "select" :]}) > 1):
            raise NotInLoops(f"{eqn.primitive.name} of {', '.join(str(o.dtype) for o in operands)}")
        if name == "convert" and operands[0].dtype == aval_of(eqn.outvars[0]).dtype:
            name = "copy"
        self._emit(name, operands, eqn.outvars[0])

    def _reduction(self, eqn: JaxprEqn) -> None:
        (given,), gone, (result,) = map(self.view, eqn.invars), tuple(eqn.params["axes"]), eqn.outvars
        kept = tuple(d for d in range(len(given.sizes)) if d not in gone)
        if all(given.sizes[d] == 1 for d in gone):
            self._views[result] = attrs.evolve(
                given, sizes=tuple(given.sizes[d] for d in kept), steps=tuple(given.steps[d] for d in kept)
            )
            return
        kind = _REDUCTIONS[eqn.primitive.name]
        if isinstance(given.base, Var) and (given.dtype != "bool") == (eqn.primitive.name not in _OF_TRUTH):
            self.operations.append(Reduction(kind, given, kept, gone, result))  # pyright: ignore[reportArgumentType]
            return
        raise NotInLoops(f"{eqn.primitive.name} of {given.dtype}")

    def _product(self, eqn: JaxprEqn) -> None:
        left, right = (self.view(atom) for atom in eqn.invars)
        (result,) = eqn.outvars
        if any(dtype != "float32" for dtype in (left.dtype, right.dtype, aval_of(result).dtype)):
            raise NotInLoops(f"a product of {left.dtype}")
        (left_sum, right_sum), (left_stack, right_stack) = eqn.params["dimension_numbers"]
        if result in self._turned and len(aval_of(result).shape) == 2 and not left_stack:
            # It is wanted the other way round: as the product of the sides in the other order.
            left, right, left_sum, right_sum = right, left, right_sum, left_sum
            result = fresh(ShapedArray(aval_of(result).shape[::-1], aval_of(result).dtype))
            self._views[eqn.outvars[0]] = View.whole(result).turned((1, 0))
        # What is summed over may come in any order: in that of one side, there is often nothing to copy.
        order = sorted(range(len(left_sum)), key=lambda i: -left.steps[left_sum[i]])
        left_sum, right_sum = [left_sum[i] for i in order], [right_sum[i] for i in order]
        left, left_sides = self._sides(left, left_stack, left_sum, rows_first=True)
        right, right_sides = self._sides(right, right_stack, right_sum, rows_first=False)
        (stack, left_near), (rows, row_step), (depth, left_depth_step) = left_sides
        (_, right_near), (columns, column_step), (_, right_depth_step) = right_sides
        product = Product(
            stack, rows, depth, columns, left, (left_near, row_step, left_depth_step), right,
            (right_near, right_depth_step, column_step), result,
        )  # fmt: skip
        # Threads that share out the depth each read rows of weights of their own.
        if stack > 1 or depth < _DEEP or depth < 2 * rows or column_step != 1 or product.cycles < LEAST:
            self.operations.append(product)
            return
        parts = fresh(ShapedArray((MOST_THREADS, rows, columns), aval_of(result).dtype))
        self.operations += [attrs.evolve(product, result=parts, is_cut=True), Parts(View.whole(parts), result)]

    def _sides(
        self, view: View, stack: Sequence[int], summed: Sequence[int], rows_first: bool
    ) -> tuple[View, list[tuple[int, int]]]:
        """An operand, and size and step of its stack, of what stays and of what is summed over."""
        stays = [d for d in range(len(view.sizes)) if d not in stack and d not in summed]
        found = [view.merged(dims) for dims in (stack, stays, summed)]
        if None in found or not isinstance(view.base, Var):
            order = [*stack, *(stays if rows_first else summed), *(summed if rows_first else stays)]
            view = self.copied(view.turned(order))
            places = [tuple(order.index(d) for d in dims) for dims in (stack, stays, summed)]
            found = [view.merged(dims) for dims in places]
        return view, [f for f in found if f is not None]

    def _rows(self, eqn: JaxprEqn) -> None:
        table, numbers = (self.view(atom) for atom in eqn.invars)
        (result,) = eqn.outvars
        dims, last = eqn.params["dimension_numbers"], len(numbers.sizes) - 1
        rows = numbers.count
        picks_rows = (
            dims.collapsed_slice_dims == (0,)
            and dims.start_index_map == (0,)
            and not dims.operand_batching_dims
            and tuple(eqn.params["slice_sizes"]) == (1, *table.sizes[1:])
            and dims.offset_dims == tuple(range(last, last + len(table.sizes) - 1))
            and numbers.sizes[-1] == 1
            and table.is_dense
            and isinstance(table.base, Var)
            and table.dtype != "bool"
            and numbers.dtype in ("int32", "int64")
            and eqn.params["mode"] in (lax.GatherScatterMode.PROMISE_IN_BOUNDS, lax.GatherScatterMode.CLIP)
        )
        if not picks_rows:
            raise NotInLoops("gather of other than rows")
        if not numbers.is_dense or not isinstance(numbers.base, Var):
            numbers = self.copied(numbers)
        self.operations.append(Rows(table, numbers, rows, aval_of(result).size // rows, result))

    def _joined(self, eqn: JaxprEqn) -> None:
        (result,), dim, first = eqn.outvars, eqn.params["dimension"], 0
        whole = View.whole(result)
        pieces = []
        for atom in eqn.invars:
            given = self.view(atom)
            starts = tuple(first if d == dim else 0 for d in range(len(given.sizes)))
            first += given.sizes[dim]
            limits = tuple(first if d == dim else size for d, size in enumerate(given.sizes))
            pieces.append((given, whole.cut(starts, limits, None)))
        self.operations.append(Joined(tuple(pieces), result))

    def _bits(self, eqn: JaxprEqn) -> None:
        new = np.dtype(eqn.params["new_dtype"])
        view = self.view(eqn.invars[0])
        if new.itemsize != view.dtype.itemsize or "bool" in (new, view.dtype):
            raise NotInLoops("bitcast_convert_type to another width")
        self._emit("copy", [view], eqn.outvars[0])

    def _round(self, eqn: JaxprEqn) -> None:
        if eqn.params["rounding_method"] != lax.RoundingMethod.TO_NEAREST_EVEN or not _is_float(eqn.invars[0]):
            raise NotInLoops("rounding away from zero")
        self._emit("round", [self.view(eqn.invars[0])], eqn.outvars[0])

    def _same(self, eqn: JaxprEqn) -> None:
        for atom, var in zip(eqn.invars, eqn.outvars, strict=True):
            self._views[var] = self.view(atom)

    def _reshaped(self, eqn: JaxprEqn) -> View:
        sizes = tuple(aval_of(eqn.outvars[0]).shape)
        if eqn.primitive.name == "reshape" and eqn.params["dimensions"] is not None:
            raise NotInLoops("reshape of other dimensions")
        view = self.view(eqn.invars[0])
        return view.reshaped(sizes) or self.copied(view).reshaped(sizes) or view


_OF_TRUTH = ("reduce_or", "reduce_and")
VIEWING: dict[str, Callable[[Translation, JaxprEqn], View]] = {
    "broadcast_in_dim": lambda t, e: t.view(e.invars[0]).broadcast(
        tuple(e.params["shape"]), e.params["broadcast_dimensions"]
    ),
    "reshape": Translation._reshaped,
    "squeeze": Translation._reshaped,
    "expand_dims": Translation._reshaped,
    "transpose": lambda t, e: t.view(e.invars[0]).turned(e.params["permutation"]),
    "slice": lambda t, e: t.view(e.invars[0]).cut(
        e.params["start_indices"], e.params["limit_indices"], e.params["strides"]
    ),
}
_OTHERS: dict[str, Callable[[Translation, JaxprEqn], None]] = {
    "dot_general": Translation._product,
    "gather": Translation._rows,
    "concatenate": Translation._joined,
    "bitcast_convert_type": Translation._bits,
    "round": Translation._round,
    "stop_gradient": Translation._same,
    "copy": Translation._same,
    "copy_p": Translation._same,
    "optimization_barrier": Translation._same,
}


def _is_float(atom: Atom) -> bool:
    return aval_of(atom).dtype in ("float32", "float64")


def _only_turned(jaxpr: Jaxpr) -> set[Var]:
    """Matrices of which everybody reads the transposed ones."""
    turned: set[Var] = set()
    others = {atom for atom in jaxpr.outvars if isinstance(atom, Var)}
    for eqn in jaxpr.eqns:
        is_turning = eqn.primitive.name == "transpose" and tuple(eqn.params["permutation"]) == (1, 0)
        (turned if is_turning else others).update(atom for atom in eqn.invars if isinstance(atom, Var))
    return turned - others


def _check_type(atom: Atom) -> None:
    dtype = str(aval_of(atom).dtype)
    if dtype not in TYPES or 0 in aval_of(atom).shape:
        raise NotInLoops(f"{dtype}{list(aval_of(atom).shape)}")
