"""How far windows reach along one dimension."""

import attrs
from jax.extend.core import JaxprEqn

from openipu.compiler.passes.jaxprs import aval_of


@attrs.frozen
class Side:
    """Windows along one dimension.

    Attributes:
      size: of what they are laid over.
      stride: from one window to the next.
      low: padding before the first element.
      dilation: how far apart the elements of a window are.
      spread: how far apart the elements are that windows are laid over; between them are zeros.
    """

    size: int
    stride: int
    low: int
    dilation: int = 1
    spread: int = 1

    def reach(self, windows: int, kernel: int) -> int:
        """How many elements, and padding before them, so many windows of so many elements cover."""
        return (windows - 1) * self.stride + (kernel - 1) * self.dilation + 1

    def read(self, windows: int, kernel: int) -> int:
        """How many elements so many windows read."""
        last = (self.reach(windows, kernel) - 1 - self.low) // self.spread
        return max(0, min(self.size, last + 1))

    def taken(self, windows: int, kernel: int) -> int:
        """How many elements so many windows of a convolution are given: what its own stride leaves over, too."""
        read = self.read(windows, kernel)
        return self.size if self.size - read < self.stride else read

    def touching(self, elements: int) -> int:
        """How many windows, counted from the first, can hold one of so many elements."""
        return max(0, ((elements - 1) * self.spread + self.low) // self.stride + 1)

    def high(self, windows: int, kernel: int, elements: int) -> int:
        """The padding behind so many elements that so many windows take."""
        return self.reach(windows, kernel) - self.low - ((elements - 1) * self.spread + 1)


@attrs.frozen
class Space:
    """One dimension of space of a convolution: where operands and result have it, and its windows."""

    left: int
    right: int
    out: int
    side: Side


def convolution_space(eqn: JaxprEqn) -> list[Space]:
    """The dimensions of space of a convolution."""
    params, numbers = eqn.params, eqn.params["dimension_numbers"]
    shape = aval_of(eqn.invars[0]).shape
    dims = zip(numbers.lhs_spec[2:], numbers.rhs_spec[2:], numbers.out_spec[2:], strict=True)
    names = ("window_strides", "padding", "rhs_dilation", "lhs_dilation")
    columns = zip(*(params[name] for name in names), strict=True)
    return [
        Space(left, right, out, Side(shape[left], stride, int(low), dilation, spread))
        for (left, right, out), (stride, (low, _), dilation, spread) in zip(dims, columns, strict=True)
    ]


def pooling_sides(eqn: JaxprEqn) -> list[tuple[Side, int]] | None:
    """The windows of a pooling along each dimension, and their sizes; None where elements are spread."""
    params = eqn.params
    if any(base > 1 for base in params["base_dilation"]):
        return None
    names = ("window_strides", "padding", "window_dilation", "window_dimensions")
    columns = zip(aval_of(eqn.invars[0]).shape, *(params[name] for name in names), strict=True)
    return [(Side(n, stride, int(low), dilation), size) for n, stride, (low, _), dilation, size in columns]


def scattered_sides(eqn: JaxprEqn) -> list[tuple[Side, int]] | None:
    """The windows of a gradient of maxima along each dimension of the operand, and their sizes; None with padding."""
    params = eqn.params
    if any(tuple(map(int, pair)) != (0, 0) for pair in params["padding"]):
        return None
    columns = zip(aval_of(eqn.invars[1]).shape, params["window_strides"], params["window_dimensions"], strict=True)
    return [(Side(n, stride, 0), size) for n, stride, size in columns]
