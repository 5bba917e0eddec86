"""What a loop computes in a step: operations on whole arrays, as the kernel has them."""

import math
from collections.abc import Sequence
from typing import Literal

import attrs
from jax.extend.core import Var

from openipu.compiler.passes.jaxprs import aval_of
from openipu.compiler.passes.loops.views import View

# Cycles of a call, and of each array that is looked up.
_CALL = 150
# What one instruction takes for sixteen numbers, in cycles, where it is more than one.
_CYCLES = {
    "divide": 12, "root": 20, "reciprocal_root": 32, "exponential": 16, "exponential_less_one": 16, "logarithm": 32,
    "logarithm_of_one_more": 60, "tangent": 32, "logistic": 32, "error_function": 60, "error_function_rest": 60,
    "power": 500, "remainder": 500, "sine": 500, "cosine": 500,
}  # fmt: skip


@attrs.frozen(eq=False)
class Instruction:
    """One elementwise function.

    Attributes:
      name: of the function, as `encoding.CODES` has them.
      operands: values: variables that the same operation computes, or views.
      result: the variable.
    """

    name: str
    operands: tuple[Var | View, ...]
    result: Var


@attrs.frozen(eq=False)
class Elementwise:
    """Instructions on arrays of equal sizes; of what they make, some is kept.

    Attributes:
      sizes: of all arrays.
      instructions: in an order in which they can be computed.
      kept: what others read.
    """

    sizes: tuple[int, ...]
    instructions: tuple[Instruction, ...]
    kept: tuple[Var, ...]

    @property
    def views(self) -> list[View]:
        """What it reads of others, each once."""
        return list(dict.fromkeys(o for i in self.instructions for o in i.operands if isinstance(o, View)))

    @property
    def cycles(self) -> float:
        """About how long it takes on one core."""
        each = sum(_CYCLES.get(i.name, 1) for i in self.instructions) + len(self.views) + len(self.kept)
        return _CALL * (1 + len(self.views)) + each * math.prod(self.sizes) / 16

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns of what it makes."""
        return extent(self.sizes)


class _OfOneResult:
    """An operation that makes one array."""

    result: Var

    @property
    def kept(self) -> tuple[Var, ...]:
        """What others read."""
        return (self.result,)


@attrs.frozen(eq=False)
class Product(_OfOneResult):
    """A product of matrices, or of stacks of them.

    Attributes:
      stack, rows, depth, columns: sizes.
      left, right: what is read.
      left_steps, right_steps: of stack, (rows, depth) and (depth, columns).
      result: stored in order.
      is_cut: whether threads share out what is summed over: the result has one more dimension, of parts.
    """

    stack: int
    rows: int
    depth: int
    columns: int
    left: View
    left_steps: tuple[int, int, int]
    right: View
    right_steps: tuple[int, int, int]
    result: Var
    is_cut: bool = False

    @property
    def views(self) -> list[View]:
        """What it reads."""
        return [self.left, self.right]

    @property
    def multiplications(self) -> int:
        """How many multiply-adds there are."""
        return self.stack * self.rows * self.depth * self.columns

    @property
    def cycles(self) -> float:
        """About how long it takes on one core."""
        tiles = self.stack * -(-self.rows // 6) * -(-self.columns // 64)
        # A tile of few columns waits for its own sums.
        vectors = min(4, -(-self.columns // 16))
        return _CALL + self.depth * (tiles * max(4, 3.6 * vectors) + self.columns / 8)

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns of what it makes."""
        return self.stack * self.rows, self.columns


@attrs.frozen(eq=False)
class Reduction(_OfOneResult):
    """A sum or an extreme over some dimensions.

    Attributes:
      kind: sum, most, least or times.
      given: what is read.
      kept_dims, gone: dimensions of it that stay, and that do not.
      result: stored in order.
    """

    kind: Literal["sum", "most", "least", "times"]
    given: View
    kept_dims: tuple[int, ...]
    gone: tuple[int, ...]
    result: Var

    @property
    def views(self) -> list[View]:
        """What it reads."""
        return [self.given]

    @property
    def cycles(self) -> float:
        """About how long it takes on one core."""
        return _CALL + self.given.count / 4

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns of what it makes."""
        return 1, math.prod(self.given.sizes[d] for d in self.kept_dims)


@attrs.frozen(eq=False)
class Rows(_OfOneResult):
    """Rows of a table by their numbers.

    Attributes:
      table: what they are picked from, stored in order.
      numbers: stored in order.
      rows, columns: of the result.
      result: stored in order.
    """

    table: View
    numbers: View
    rows: int
    columns: int
    result: Var

    @property
    def views(self) -> list[View]:
        """What it reads."""
        return [self.table, self.numbers]

    @property
    def cycles(self) -> float:
        """About how long it takes on one core."""
        return self.rows * (50 + self.columns * self.table.dtype.itemsize / 4)

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns of what it makes."""
        return self.rows, self.columns


@attrs.frozen(eq=False)
class Parts(_OfOneResult):
    """The sum of what threads made of a product.

    Attributes:
      given: parts, rows and columns; there are as many parts as threads.
      result: stored in order.
    """

    given: View
    result: Var

    @property
    def views(self) -> list[View]:
        """What it reads."""
        return [self.given]

    @property
    def cycles(self) -> float:
        """About how long it takes on one core."""
        return _CALL + aval_of(self.result).size

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns of what it makes."""
        return self.given.sizes[1], self.given.sizes[2]


@attrs.frozen(eq=False)
class Joined(_OfOneResult):
    """Arrays side by side in one.

    Attributes:
      pieces: what is read, and where in the result it is written; each has the dimensions of the result.
      result: stored in order.
    """

    pieces: tuple[tuple[View, View], ...]
    result: Var

    @property
    def views(self) -> list[View]:
        """What it reads."""
        return [given for given, _ in self.pieces]

    @property
    def cycles(self) -> float:
        """About how long it takes on one core."""
        return aval_of(self.result).size / 4

    @property
    def extent(self) -> tuple[int, int]:
        """It is made as a whole."""
        return 1, 1


Operation = Elementwise | Product | Reduction | Rows | Parts | Joined


def extent(sizes: Sequence[int]) -> tuple[int, int]:
    """An array as rows of columns."""
    return math.prod(sizes[:-1]), sizes[-1] if sizes else 1
