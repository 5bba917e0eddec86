"""Loops as the numbers that the kernel reads (`native/kernels/loop.cc`)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from jax.extend.core import Var

from openipu.compiler.passes.jaxprs import aval_of
from openipu.compiler.passes.loops.fusion import reads
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
from openipu.compiler.passes.loops.schedule import Chain, Phase, threads
from openipu.compiler.passes.loops.translation import TYPES
from openipu.compiler.passes.loops.views import Constant, NotInLoops, View, common

CODES = (
    "fill", "load", "store", "convert", "select",
    "add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "power",
    "and", "or", "xor", "not", "shift_left", "shift_right_logical", "shift_right_arithmetic",
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
    "negate", "absolute", "sign", "exponential", "exponential_less_one", "logarithm", "logarithm_of_one_more",
    "tangent", "logistic", "root", "reciprocal_root", "error_function", "error_function_rest",
    "floor", "ceiling", "round", "is_finite",
    "sine", "cosine",
)  # fmt: skip
_KINDS = ("sum", "most", "least", "times")
_SOURCES = ("given", "carried", "taken", "made", "kept", "own", "constant", "passing")
_SPLITS = ("rows", "columns", "depth", "whole")
_ELEMENTWISE, _PRODUCT, _REDUCTION, _ROWS, _PARTS, _JOINED = range(6)
# As in the kernel: numbers that an elementwise operation computes at once.
_TILE = 1024
_MOST_VALUES = 256
_LINE = 64
# Bytes of a block of rows that goes through all operations of a chain, and what its rows are a multiple of.
_BLOCK_BYTES = 1 << 14
_BLOCK_ROWS = 6

Numbers = list[int]
# Whether the first value is kept where the second one is.
Overwrites = Callable[[Var, Any], bool]


@attrs.frozen
class Source:
    """Where an array of a loop is.

    Attributes:
      kind: given; carried (given, and from the second step on the result); taken or made, one row a step; kept (a
        result of the last step); own; constant; passing (own, a block of it in each thread).
      given, result: which of what the kernel is given and makes; of an own one or a constant, where it is.
      step: bytes from one step to the next.
    """

    kind: str
    given: int = 0
    result: int = 0
    step: int = 0


def encode(steps: int, found: Sequence[Phase], sources: Mapping[Var, Source], writes: Mapping[Var, Source]) -> Numbers:
    """A loop as numbers.

    Args:
      steps: how many.
      found: what a step is.
      sources: where values are that the body is given.
      writes: where values are kept that it makes and that leave it; all others are its own.
    """
    return _Encoder(sources, writes).loop(steps, found)


class _Encoder:
    def __init__(self, sources: Mapping[Var, Source], writes: Mapping[Var, Source]) -> None:
        self._sources: list[Source] = []
        self._numbers: dict[Var | bytes, int] = {}
        self._constants: Numbers = []
        self._own = 0
        self._tiles = 0
        self._block = 0
        self._given, self._writes = sources, writes

    def loop(self, steps: int, found: Sequence[Phase]) -> Numbers:
        operations: list[Numbers] = []
        phases: Numbers = []
        readers: dict[Var, set[Operation]] = {}
        for operation in (o for phase in found for o in phase.operations):
            for var in reads(operation):
                readers.setdefault(var, set()).add(operation)
        for phase in found:
            phases += [int(phase.is_shared), len(phase.chains)]
            for chain in phase.chains:
                phases += self._chain(chain, readers)
                phases += [len(chain.operations), *range(len(operations), len(operations) + len(chain.operations))]
                operations += [self._operation(o, phase.is_shared) for o in chain.operations]
        sources = [n for s in self._sources for n in (_SOURCES.index(s.kind), s.given, s.result, s.step)]
        return [
            steps, threads(found), self._own, self._tiles, self._block, len(self._constants), *self._constants,
            len(self._sources), *sources, len(operations), *(n for o in operations for n in o), len(found), *phases,
        ]  # fmt: skip

    def _chain(self, chain: Chain, readers: Mapping[Var, set[Operation]]) -> Numbers:
        """How a chain is cut, and which of its arrays need not leave a thread."""
        described = [_SPLITS.index(chain.split), chain.rows]
        rows, columns = chain.operations[0].extent
        is_one_width = all(o.extent == (rows, columns) for o in chain.operations)
        if chain.split != "rows" or len(chain.operations) == 1 or not is_one_width:
            return [*described, 0 if is_one_width else max(1, chain.rows), 0, 0]
        # As many rows as fit, in full tiles of products.
        block = max(_BLOCK_ROWS, -(-_BLOCK_BYTES // (4 * columns) // _BLOCK_ROWS) * _BLOCK_ROWS)
        passing = [
            var
            for o in chain.operations
            for var in o.kept
            if var not in self._writes and readers.get(var, set()) <= set(chain.operations)
        ]
        at = 0
        for var in passing:
            self._numbers[var] = len(self._sources)
            self._sources.append(Source("passing", at))
            at += -(-block * columns * aval_of(var).dtype.itemsize // _LINE) * _LINE
        self._block = max(self._block, at)
        widths = [columns * aval_of(var).dtype.itemsize for var in passing]
        return [*described, block, len(passing), *(self._numbers[var] for var in passing), len(widths), *widths]

    def _operation(self, operation: Operation, is_shared: bool) -> Numbers:
        match operation:
            case Elementwise():
                return [_ELEMENTWISE, *self._elementwise(operation, is_shared)]
            case Product():
                return [_PRODUCT, *self._product(operation)]
            case Reduction():
                return [_REDUCTION, *self._reduction(operation)]
            case Rows():
                return [_ROWS, *self._rows(operation)]
            case Parts():
                return [_PARTS, *self._at(operation.given), self._array(operation.result), 0, *operation.extent]
            case Joined():
                return [_JOINED, *self._joined(operation)]

    def _array(self, base: Var | Constant) -> int:
        """The number of an array; it gets a place when it is first asked for."""
        key = base if isinstance(base, Var) else base.value + str(base.dtype).encode()
        if key not in self._numbers:
            self._numbers[key] = len(self._sources)
            self._sources.append(self._place(base))
        return self._numbers[key]

    def _place(self, base: Var | Constant) -> Source:
        if isinstance(base, Constant):
            self._constants.append(int.from_bytes(base.value.ljust(8, b"\0"), "little", signed=True))
            return Source("constant", len(self._constants) - 1)
        known = self._given.get(base) or self._writes.get(base)
        if known is not None:
            return known
        place = Source("own", self._own)
        self._own += -(-aval_of(base).size * aval_of(base).dtype.itemsize // _LINE) * _LINE
        return place

    def _overwrites(self, var: Var, base: Any) -> bool:
        """Whether a value is kept where another one is, of the step before."""
        new, old = self._writes.get(var), self._given.get(base)
        return new is not None and old is not None and old.kind == "carried" and new.result == old.result

    def _at(self, view: View) -> Numbers:
        return [self._array(view.base), view.offset * view.dtype.itemsize]

    def _elementwise(self, operation: Elementwise, is_shared: bool) -> Numbers:
        views = list(operation.views)
        plain = [View.whole(o) for o in _outside(operation)]
        views += [view for view in plain if view not in views]
        kept = [View.whole(var) for var in operation.kept]
        every = [_steady(view) for view in (*views, *kept)]
        sizes, steps = common(every, keep_last=is_shared)
        described = [len(sizes), *sizes, len(every)]
        for view, along in zip(every, steps, strict=True):
            described += [*self._at(view), _type(view.dtype), len(along), *along]
        tiles = _Tiles(operation, views, every, self._overwrites)
        self._tiles = max(self._tiles, tiles.end)
        if len(tiles.places) > _MOST_VALUES:
            raise NotInLoops("an operation of too many values")
        described += [len(tiles.places), *tiles.places, len(tiles.instructions)]
        return [*described, *(n for one in tiles.instructions for n in one)]

    def _product(self, o: Product) -> Numbers:
        left, right = (*self._at(o.left), *o.left_steps), (*self._at(o.right), *o.right_steps)
        return [o.rows, o.depth, *left, *right, self._array(o.result), 0, o.stack, o.columns]

    def _reduction(self, o: Reduction) -> Numbers:
        described = [_type(o.given.dtype), _KINDS.index(o.kind), *self._at(o.given), self._array(o.result), 0]
        for dims in (o.kept_dims, o.gone):
            part = View(
                o.given.base, 0, tuple(o.given.sizes[d] for d in dims), tuple(o.given.steps[d] for d in dims),
                o.given.dtype,
            )  # fmt: skip
            sizes, (steps,) = common([part], keep_last=False) if dims else ((), ((),))
            described += [len(sizes), *sizes, len(steps), *steps]
        return described

    def _joined(self, o: Joined) -> Numbers:
        width = aval_of(o.result).dtype.itemsize
        described = [self._array(o.result), 0, width, len(o.pieces)]
        for given, part in o.pieces:
            sizes, (source, target) = common([given, part], keep_last=True)
            described += [*self._at(given), part.offset * width]
            described += [len(sizes), *sizes, len(source), *source, len(sizes), *sizes, len(target), *target]
        return described

    def _rows(self, o: Rows) -> Numbers:
        return [
            *self._at(o.table), *self._at(o.numbers), self._array(o.result), 0, int(o.numbers.dtype.itemsize == 8),
            o.table.sizes[0], o.rows, o.table.dtype.itemsize, o.columns,
        ]  # fmt: skip


def _type(dtype: np.dtype) -> int:
    return TYPES.index(str(dtype))


def _outside(operation: Elementwise) -> list[Var]:
    """Variables that it reads as they are stored, and does not make."""
    made = {i.result for i in operation.instructions}
    read = (o for i in operation.instructions for o in i.operands if isinstance(o, Var))
    return [var for var in dict.fromkeys(read) if var not in made]


def _steady(view: View) -> View:
    """A view; of a single number one that stays there."""
    return attrs.evolve(view, steps=(0,) * len(view.steps)) if view.count == 1 else view


class _Tiles:
    """The instructions of one operation, and where what they read and make is in a thread's tiles.

    Attributes:
      places: of each value, where it is in the tiles.
      instructions: as numbers; operands are values.
      end: how long the tiles are.
    """

    def __init__(
        self, operation: Elementwise, views: Sequence[View], every: Sequence[View], overwrites: Overwrites
    ) -> None:
        self.places: Numbers = []
        self.instructions: list[Numbers] = []
        self.end = 0
        self._free: dict[int, Numbers] = {4: [], 8: []}
        self._values: dict[Var | View, int] = {}
        last = {o: n for n, i in enumerate(operation.instructions) for o in (*i.operands, i.result)}
        # What is kept is written at the end: what it overwrites has been read by then.
        last |= dict.fromkeys(operation.kept, len(operation.instructions))
        for number, instruction in enumerate(operation.instructions):
            for operand in dict.fromkeys(instruction.operands):
                if operand not in self._values:
                    self._read(operand, views, every)
            if instruction.name == "copy":
                # The same bits under another name; nobody else gets the place.
                self._values[instruction.result] = self._values[instruction.operands[0]]
                last[instruction.operands[0]] = last[instruction.result] = len(operation.instructions)
            else:
                self._compute(instruction)
            for operand in dict.fromkeys((*instruction.operands, instruction.result)):
                if last[operand] == number and not self._stays(operand, every, views):
                    value = self._values[operand]
                    self._free[_width(_dtype(operand))].append(self.places[value])
        for number, var in enumerate(operation.kept):
            in_place = int(self._may_be_in_place(var, operation, overwrites))
            self._add("store", aval_of(var).dtype, None, [self._values[var], in_place], len(views) + number)

    def _read(self, operand: Var | View, views: Sequence[View], every: Sequence[View]) -> None:
        view = operand if isinstance(operand, View) else View.whole(operand)
        number, width = views.index(view), _width(view.dtype)
        if any(every[number].steps):
            self._values[operand] = self._new(width)
            self._add("load", view.dtype, None, [number], self._values[operand])
        else:
            # One number, which fills its tile before all other instructions: nothing may be there before it.
            self._values[operand] = self._value(self._unused(width))
            self._add("fill", view.dtype, None, [number], self._values[operand])

    def _stays(self, operand: Var | View, every: Sequence[View], views: Sequence[View]) -> bool:
        """Whether a value is one number, in a tile that nothing else is written to."""
        view = operand if isinstance(operand, View) else View.whole(operand)
        return view in views and not any(every[views.index(view)].steps)

    def _may_be_in_place(self, var: Var, operation: Elementwise, overwrites: Overwrites) -> bool:
        """Whether a value may be computed where it is kept: nobody else has its place, or reads what was there."""
        if list(self._values.values()).count(self._values[var]) > 1:
            return False
        made = next(n for n, i in enumerate(operation.instructions) if i.result is var)
        later = (o for i in operation.instructions[made + 1 :] for o in i.operands)
        return not any(overwrites(var, o.base if isinstance(o, View) else o) for o in later)

    def _compute(self, instruction: Instruction) -> None:
        operands = [self._values[o] for o in instruction.operands]
        made = aval_of(instruction.result).dtype
        self._values[instruction.result] = self._new(_width(made))
        self._add(instruction.name, _dtype(instruction.operands[-1]), made, operands, self._values[instruction.result])

    def _add(self, name: str, dtype: np.dtype, made: np.dtype | None, operands: Numbers, result: int) -> None:
        operands = [*operands, *[0] * (3 - len(operands))]
        self.instructions.append([CODES.index(name), _type(dtype), _type(made or dtype), *operands, result])

    def _new(self, width: int) -> int:
        """A value in a place that is free."""
        return self._value(self._free[width].pop() if self._free[width] else self._unused(width))

    def _value(self, place: int) -> int:
        self.places.append(place)
        return len(self.places) - 1

    def _unused(self, width: int) -> int:
        self.end += _TILE * width
        return self.end - _TILE * width


def _dtype(operand: Var | View) -> np.dtype:
    return operand.dtype if isinstance(operand, View) else np.dtype(aval_of(operand).dtype)


def _width(dtype: np.dtype) -> int:
    """Bytes of a number in a tile."""
    return 8 if dtype.itemsize == 8 else 4
