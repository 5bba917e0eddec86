"""Printing tensors while a program runs."""

import sys
from typing import Any

import jax
import numpy as np
import torch
from jax.experimental import io_callback

from openipu.torch.aten.registry import lowering
from openipu.torch.exceptions import Error
from openipu.torch.tracing import isRunningOnIpu

_FORMATS = {"auto": 0, "fixed": 1, "scientific": 2, "none": 3}


@torch.library.custom_op("openipu::print_tensor", mutates_args=())
def _print_tensor(
    x: torch.Tensor, title: str, gradient: bool, threshold: int, edge: int, width: int, digits: int, form: int,
    signs: str,
) -> torch.Tensor:  # fmt: skip
    """The tensor itself; on the IPU it is printed."""
    return x.clone()


@_print_tensor.register_fake
def _print_tensor_fake(x: torch.Tensor, *rest: Any) -> torch.Tensor:
    return torch.empty_like(x)


@lowering("openipu::print_tensor")
def _print_lowering(
    x: jax.Array, title: str, gradient: bool, threshold: int, edge: int, width: int, digits: int, form: int, signs: str
) -> jax.Array:
    layout = (threshold, edge, width, digits, form, signs)

    def show(name: str, value: jax.Array, *after: jax.Array) -> None:
        jax.debug.callback(lambda array, *_: _write(name, np.asarray(array), layout), value, *after)

    @jax.custom_vjp
    def shown(value: jax.Array) -> jax.Array:
        show(title, value)
        return value

    def forward(value: jax.Array) -> tuple[jax.Array, jax.Array]:
        def write(array: Any) -> np.ndarray:
            _write(title, np.asarray(array), layout)
            return np.zeros((), np.int32)

        return value, io_callback(write, jax.ShapeDtypeStruct((), np.int32), value)

    def backward(written: jax.Array, cotangent: jax.Array) -> tuple[jax.Array]:
        if gradient:
            # It waits for what the forward pass wrote: lines come in the order a reader expects.
            show(f"{title}_gradient", cotangent, written)
        return (cotangent,)

    shown.defvjp(forward, backward)
    return shown(x)


def _write(title: str, value: np.ndarray, layout: tuple) -> None:
    sys.stderr.write(f"{title}: {render(value, *layout)}\n")
    sys.stderr.flush()


def render(
    value: np.ndarray, threshold: int = 1000, edge: int = 3, width: int = 80, digits: int = 4, form: int = 0,
    signs: str = ",()",
) -> str:  # fmt: skip
    """A tensor as text: a row a line, indented by one space for each level.

    Args:
      value: the tensor.
      threshold: with more elements only the ends of each dimension are shown.
      edge: how many elements of each end.
      width: the longest line.
      digits: significant digits, or those behind the point.
      form: the number of the float format.
      signs: separator, opening bracket, closing bracket.
    """
    separator, opening, closing = signs

    def number(x: Any) -> str:
        if not np.issubdtype(value.dtype, np.floating):
            return str(x)
        return {0: f"{x:.{digits}g}", 1: f"{x:.{digits}f}", 2: f"{x:.{digits - 1}e}", 3: repr(float(x))}[form]

    def items(array: np.ndarray) -> list[Any]:
        if value.size <= threshold or len(array) <= 2 * edge:
            return list(array)
        return [*array[:edge], None, *array[-edge:]]

    def row(array: np.ndarray, level: int) -> str:
        words = ["..." if x is None else number(x) for x in items(array)]
        lines, line = [], ""
        for word in words:
            if line and len(line) + len(word) + len(separator) > width:
                lines.append(line.rstrip())
                line = ""
            line += word + separator
        lines.append(line.removesuffix(separator))
        return " " * level + opening + f"\n{' ' * (level + 1)}".join(lines) + closing

    def block(array: np.ndarray, level: int) -> str:
        if array.ndim == 1:
            return row(array, level)
        inner = [" " * (level + 1) + "..." if x is None else block(x, level + 1) for x in items(array)]
        joint = f"{separator.strip()}\n"
        return f"{' ' * level}{opening}\n{joint.join(inner)}\n{' ' * level}{closing}"

    return number(value[()]) if value.ndim == 0 else block(value, 0)


def ipu_print_tensor(
    tensor: torch.Tensor,
    title: str = "",
    print_gradient: bool = True,
    summarise_threshold: int = 1000,
    edge_items: int = 3,
    max_line_width: int = 80,
    digits: int = 4,
    float_format: str = "auto",
    separator: str = ", ",
    open_bracket: str = "(",
    close_bracket: str = ")",
) -> torch.Tensor:
    """The tensor itself; on the IPU it is printed to standard error at every execution.

    Args:
      tensor: what to print; use the result, or nothing is printed.
      title: printed before it.
      print_gradient: print the gradient too, when training.
      summarise_threshold: with more elements only the ends are shown.
      edge_items: how many elements of each end.
      max_line_width: the longest line.
      digits: digits of floating-point numbers.
      float_format: "auto", "fixed", "scientific" or "none".
      separator, open_bracket, close_bracket: of each the first character counts.
    """
    if not isinstance(tensor, torch.Tensor):
        raise Error(f"ipu print tensor must take a torch.tensor argument. {type(tensor)} is not supported.")
    form = _FORMATS[float_format]
    if not isRunningOnIpu():
        return tensor
    signs = separator[0] + open_bracket[0] + close_bracket[0]
    return _print_tensor(
        tensor, title, bool(print_gradient), summarise_threshold, edge_items, max_line_width, digits, form, signs
    )
