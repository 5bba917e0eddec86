"""Cycles of the kernels that are not products: elementwise work, reductions, windows, look-ups, random numbers."""

import math

import attrs

from openipu.model import constants as c

# Cycles per vector (2 floats or 4 halves), loads and stores apart: for float32, for 16 bits. Source: PL, section 1.2 of
# the reference. An erf is that of GELU, which PopLibs computes by its tanh form.
_SLOW = {
    "exp": (6.0, 4.0),
    "exp2": (6.0, 4.0),
    "expm1": (7.0, 5.0),
    "tanh": (12.0, 4.0),
    "logistic": (12.0, 6.0),
    "log": (12.0, 4.0),
    "log1p": (13.0, 5.0),
    "sqrt": (10.0, 23.0),
    "rsqrt": (8.0, 19.0),
    "div": (6.0, 15.0),
    "rem": (12.0, 24.0),
    "pow": (24.0, 12.0),
    "erf": (14.0, 6.0),
    "erfc": (14.0, 6.0),
    "erf_inv": (40.0, 40.0),
    "atan2": (4600.0, 100.0),
    "sin": (4600.0, 100.0),
    "cos": (4600.0, 100.0),
    "tan": (4600.0, 100.0),
    "lgamma": (200.0, 200.0),
    "digamma": (200.0, 200.0),
}
# These do half an instruction's work on a vector: they have no second operand, or it is a constant or a mask.
_LIGHT = frozenset({
    "and", "bitcast_convert_type", "clamp", "convert_element_type", "copy", "copy_p", "eq", "ge", "gt", "is_finite",
    "le", "lt", "max", "min", "ne", "neg", "not", "or", "select_n", "sign", "xor",
})  # fmt: skip


@attrs.frozen
class Tiles:
    """The part of an IPU that computes: how many tiles."""

    count: int

    def share(self, elements: float) -> float:
        """Elements on one tile."""
        return elements / self.count


def instruction(primitive: str, half: bool) -> float:
    """Cycles per vector of one elementwise operation, without loads and stores."""
    if primitive in _SLOW:
        return _SLOW[primitive][half]
    return 0.5 if primitive in _LIGHT else 1.0


def vector(half: bool) -> int:
    """Elements of a vector."""
    return 4 if half else 2


def elementwise(
    tiles: Tiles, elements: float, half: bool, cycles: float, operations: int = 1, inputs: int = 1
) -> float:
    """Operations fused into one.

    Args:
      tiles: that compute.
      elements: of the result.
      half: they are 16 bits wide or less.
      cycles: of all operations per vector, see `instruction`.
      operations: how many they are.
      inputs: arrays that are read.
    """
    each = c.ELEMENTWISE_MOVE + cycles + c.ELEMENTWISE_INPUT * max(0, inputs - 1)
    start = c.ELEMENTWISE_CALL + c.ELEMENTWISE_MORE * (operations - 1)
    return start + tiles.share(elements) / vector(half) * each


def relayout(tiles: Tiles, size: float) -> float:
    """Moving `size` bytes to where the next operation wants them."""
    return c.RELAYOUT_CALL + c.RELAYOUT_BYTE * tiles.share(size)


def reduction(tiles: Tiles, elements: float, results: float, half: bool) -> float:
    """Reducing elements to results; as many results as tiles are reduced where they are."""
    start = c.REDUCTION_LOCAL_CALL if results >= tiles.count else c.REDUCTION_CALL
    return start + tiles.share(elements) * c.REDUCTION_ELEMENT * (1.0 if half else c.REDUCTION_FLOAT)


def pooling(tiles: Tiles, results: float, window: int, half: bool) -> float:
    """Maxima or sums over windows."""
    return c.POOLING_CALL + tiles.share(results) * window / vector(half) * c.POOLING_VECTOR


def pooling_gradient(tiles: Tiles, results: float, window: int, half: bool) -> float:
    """The gradient of pooling to so many results."""
    return c.POOLING_BACKWARD * pooling(tiles, results, window, half)


def depthwise(tiles: Tiles, inputs: float, window: int, half: bool) -> float:
    """A convolution of every channel with itself alone."""
    return c.DEPTHWISE_CALL + tiles.share(inputs) * window / vector(half) * c.DEPTHWISE_VECTOR


def gather(tiles: Tiles, table: float, rows: float, size: float) -> float:
    """Looking up rows.

    Args:
      tiles: that compute.
      table: bytes that rows are chosen from.
      rows: how many are chosen.
      size: bytes of all of them.
    """
    return c.GATHER_CALL + c.GATHER_INDEX * rows / _ways(table) + tiles.share(size) / 2


def scatter(tiles: Tiles, table: float, rows: float, size: float) -> float:
    """Adding to, or replacing, rows; the arguments are those of `gather`."""
    return c.GATHER_CALL + c.SCATTER_INDEX * rows / _ways(table) + tiles.share(size)


def _ways(table: float) -> float:
    return c.SMALL_TABLE_SPLIT if table <= c.SMALL_TABLE else 1.0


def random(tiles: Tiles, elements: float, half: bool, mask: bool) -> float:
    """Random numbers; a mask of dropout takes fewer bits."""
    if mask:
        return c.ELEMENTWISE_CALL + tiles.share(elements) / vector(half) * c.DROPOUT_VECTOR
    return c.ELEMENTWISE_CALL + tiles.share(elements) * c.RANDOM_SAMPLE


def sort(tiles: Tiles, elements: float, length: int) -> float:
    """Sorting rows of a length."""
    steps = math.ceil(math.log2(max(2, length)))
    return c.REDUCTION_CALL + steps * (steps + 1) / 2 * (c.RELAYOUT_CALL + tiles.share(elements) * c.SORT_STEP)


def factorisation(tiles: Tiles, columns: int, batch: int) -> float:
    """Cholesky, LU, QR, triangular systems: one column after another, matrices of a batch side by side."""
    return c.LINEAR_ALGEBRA_COLUMN * columns * max(1.0, batch / tiles.count)
