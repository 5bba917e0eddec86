"""Which product a matrix product or a convolution of a jaxpr is, in the words of the planner."""

import math
from typing import Any

import attrs

from openipu.model.flatten import Instruction, Value


@attrs.frozen
class Product:
    """`groups` independent products [rows, inner] x [inner, columns].

    A convolution has a kernel: `inner` and `columns` are then its channels per group, `rows` is batch x positions.

    Attributes:
      rows, inner, columns, groups: sizes.
      batch, positions, kernel, stride: of a convolution.
      folded: elements of an operand that is laid out again for it, as the gradient of a kernel wants it.
      depthwise: every channel is convolved with itself alone.
    """

    rows: int
    inner: int
    columns: int
    groups: int = 1
    batch: int = 1
    positions: tuple[int, int] = (1, 1)
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1
    folded: int = 0
    depthwise: bool = False

    @property
    def flops(self) -> float:
        """Floating-point operations, a multiply-accumulate counting as two."""
        return 2.0 * self.groups * self.rows * self.inner * self.columns * math.prod(self.kernel)


def matrix_product(one: Instruction, left: Value, right: Value) -> Product:
    """The product that a `dot_general` is."""
    (contracted, _), (batch, _) = one.params["dimension_numbers"]
    inner = math.prod(left.shape[d] for d in contracted)
    groups = math.prod(left.shape[d] for d in batch)
    return Product(
        rows=max(1, left.size // max(1, inner * groups)),
        inner=max(1, inner),
        columns=max(1, right.size // max(1, inner * groups)),
        groups=max(1, groups),
    )


def window_product(one: Instruction, field: Value, kernel: Value, result: Value, backward: bool) -> Product:
    """The product that a `conv_general_dilated` is: a convolution, or the gradient of one.

    The gradient of a kernel sums over positions, so its "kernel" is larger than its result: a plain product of what
    the window sees with the gradient. That of the input has as many positions as the gradient that it is given.
    """
    params = one.params
    numbers = params["dimension_numbers"]
    field_sizes = [field.shape[d] for d in numbers.lhs_spec]
    kernel_sizes = [kernel.shape[d] for d in numbers.rhs_spec]
    result_sizes = [result.shape[d] for d in numbers.out_spec]
    window, places = _area(kernel_sizes[2:]), _area(result_sizes[2:])
    groups = params["feature_group_count"] * params["batch_group_count"]
    batch = field_sizes[0] // params["batch_group_count"]
    inputs, outputs = kernel_sizes[1], kernel_sizes[0] // groups
    if window > places or params["batch_group_count"] > 1:
        rows, inner = batch * places, inputs * window
        # Dilation of the window is the stride of the convolution whose gradient this is.
        depthwise = groups > 1 and rows // max(1, places) == 1 and outputs == 1
        return Product(rows, inner, outputs, groups, folded=groups * rows * inner // 2, depthwise=depthwise)
    dilated = max(params["lhs_dilation"], default=1)
    positions = field_sizes[2:] if backward or dilated > 1 else result_sizes[2:]
    stride = dilated if backward or dilated > 1 else max(params["window_strides"], default=1)
    depthwise = groups > 1 and inputs == 1 and outputs == 1
    rows = batch * _area(positions)
    return Product(rows, inputs, outputs, groups, batch, _plane(positions), _plane(kernel_sizes[2:]), stride,
                   depthwise=depthwise)  # fmt: skip


def window_of(params: dict[str, Any]) -> int:
    """Elements that a pooling window sees."""
    return math.prod(params["window_dimensions"])


def _area(sizes: Any) -> int:
    return math.prod(sizes)


def _plane(sizes: Any) -> tuple[int, int]:
    """Any number of spatial dimensions as two."""
    *outer, inner = sizes or (1,)
    return math.prod(outer), inner
