"""Predicted cycles beside those that Graphcore's IPU Model gave for its own benchmarks, and measured convolutions."""

import csv
import functools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from openipu.hardware.target import MK1, MK2, Target
from openipu.model import constants
from openipu.model.nodes import kernels_of
from tests.model import kernels_traced as traced

DATA = Path(__file__).parent / "data"


class Row(NamedTuple):
    """One kernel: what was published, and what is predicted."""

    group: str
    name: str
    published: float
    predicted: float

    @property
    def ratio(self) -> float:
        return self.predicted / self.published


def _lines(name: str) -> list[list[str]]:
    with (DATA / name).open() as file:
        return [row for row in csv.reader(file) if row and not row[0].startswith("#")][1:]


def ipu_model(target: Target) -> Iterator[Row]:
    """The kernels of the IPU Model's benchmarks, in cycles."""
    column = 0 if target is MK1 else 3
    for name, kind, text, *figures in _lines("poplibs_ipu_model.csv"):
        closed = _kernel(name, kind, text) if figures[column] else None
        if closed is not None:
            group = "depthwise" if "depthwise" in name else kind
            yield Row(group, name, float(figures[column]), traced.cycles(closed, target))


def product_memory(target: Target) -> Iterator[Row]:
    """Total bytes of the products among them: what is given and made, temporaries, and code."""
    column = 1 if target is MK1 else 4
    for name, kind, text, *figures in _lines("poplibs_ipu_model.csv"):
        if kind == "gemm" and figures[column]:
            closed = _kernel(name, kind, text)
            found = kernels_of(closed, target)
            kept = sum(
                math.prod(aval.shape) * aval.dtype.itemsize for aval in (*closed.in_avals[1:], *closed.out_avals)
            )
            code = constants.OPERATION_BYTES * len(found) * target.tiles
            predicted = kept + max(node.temporary for node in found) + code
            yield Row("gemm memory", name, float(figures[column]), predicted)


@functools.cache
def _kernel(name: str, kind: str, text: str):
    """A benchmark as a traced program; None for those that are repeated under another name, or that we have none of."""
    given = dict(item.split("=", 1) for item in text.split(";") if "=" in item)
    half = given.get("data-type") != "float"
    if kind == "gemm":
        return traced.product(*(int(given[key]) for key in ("m", "k", "n")), half=half)
    if kind == "fc":
        sizes = [int(given[key]) for key in ("batch-size", "input-size", "output-size")]
        return traced.dense(*sizes, groups=int(given.get("num-groups", 1)), half=half)
    if kind == "conv" and not name.startswith("conv_5x200"):
        return _convolution(given, half)
    if kind == "pooling":
        return _pooling(given, half)
    if kind == "reduction":
        shape = tuple(map(int, given["shape"].split(",")))
        axes = tuple(map(int, given["dims"].split(",")))
        reduce = jnp.max if given["operation"] == "MAX" else jnp.sum
        return jax.make_jaxpr(lambda x: reduce(x, axes))(traced.array(*shape, half=half))
    if kind == "embedding":
        rows, width = _pair(given["shape"])
        return _embedding(rows, width, int(given["num-indices"]))
    if kind in ("lstm", "gru") and "shuffled" not in name:
        return _recurrent(kind, given, half)
    return None


def _convolution(given: dict[str, str], half: bool):
    field, kernel = _pair(given["field"]), _pair(given.get("kernel-size", "1"))
    both, lower, upper = (_pair(given.get(key, "0")) for key in ("padding", "padding-lower", "padding-upper"))
    padding = [(both[i] + lower[i], both[i] + upper[i]) for i in (0, 1)]
    stride, groups = _pair(given.get("stride", "1"))[0], int(given.get("conv-groups", 1))
    inputs, outputs = int(given["input-channels"]), int(given["output-channels"])
    function = traced.convolve(field, kernel, stride, padding, groups)
    x = traced.array(int(given["batch-size"]), *field, inputs * groups, half=half)
    return traced.trained(function, x, traced.array(*kernel, inputs, outputs * groups, half=half))


def _pooling(given: dict[str, str], half: bool):
    lower, upper = int(given.get("padding-lower", 0)), int(given.get("padding-upper", 0))
    padding = ((0, 0), (lower, upper), (lower, upper), (0, 0))
    function = traced.pooled(_pair(given["kernel"])[0], int(given["stride"]), padding)
    x = traced.array(int(given["batch-size"]), *_pair(given["field"]), int(given["channels"]), half=half)
    result = jax.eval_shape(function, x)

    def step(x: jax.Array, seed: jax.Array) -> tuple:
        made, back = jax.vjp(function, x)
        return made, back(seed)

    return jax.make_jaxpr(step)(x, result)


def _embedding(rows: int, width: int, indices: int):
    table, chosen = traced.array(rows, width), jax.ShapeDtypeStruct((indices,), jnp.int32)
    look = lambda table, chosen: table.at[chosen].get(mode="promise_in_bounds")  # noqa: E731
    seed = jax.eval_shape(look, table, chosen)
    add = lambda table, chosen, seed: table.at[chosen].add(seed, mode="promise_in_bounds")  # noqa: E731
    return jax.make_jaxpr(lambda t, c, s: (look(t, c), add(t, c, s)))(table, chosen, seed)


def _recurrent(kind: str, given: dict[str, str], half: bool):
    batch, steps, inputs, units = (
        int(given[key]) for key in ("batch-size", "sequence-size", "input-size", "output-size")
    )
    gates = 4 if kind == "lstm" else 3
    cell = _lstm if kind == "lstm" else _gru

    def layer(x: jax.Array, weights: jax.Array, recurrent: jax.Array) -> jax.Array:
        projected = (x.reshape(steps * batch, inputs) @ weights).reshape(steps, batch, gates * units)
        state = jnp.zeros((batch, units), x.dtype)
        return jax.lax.scan(lambda s, z: cell(s, z, recurrent), (state, state), projected)[1]

    arguments = (
        traced.array(steps, batch, inputs, half=half), traced.array(inputs, gates * units, half=half),
        traced.array(units, gates * units, half=half),
    )  # fmt: skip
    if "phase" in given:
        return traced.trained(layer, *arguments)
    return jax.make_jaxpr(layer)(*arguments)


def _lstm(state: tuple, z: jax.Array, recurrent: jax.Array) -> tuple:
    hidden, memory = state
    i, f, g, o = jnp.split(z + hidden @ recurrent, 4, axis=-1)
    memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
    hidden = jax.nn.sigmoid(o) * jnp.tanh(memory)
    return (hidden, memory), hidden


def _gru(state: tuple, z: jax.Array, recurrent: jax.Array) -> tuple:
    hidden, _ = state
    units = hidden.shape[-1]
    gates = z[:, : 2 * units] + hidden @ recurrent[:, : 2 * units]
    update, reset = jnp.split(jax.nn.sigmoid(gates), 2, axis=-1)
    candidate = jnp.tanh(z[:, 2 * units :] + (reset * hidden) @ recurrent[:, 2 * units :])
    hidden = update * hidden + (1 - update) * candidate
    return (hidden, hidden), hidden


def measured_convolutions() -> Iterator[Row]:
    """The convolutions measured on one GC2, in TFLOP/s."""
    with (DATA / "gc2_convolutions.csv").open() as file:
        header, *lines = [row for row in csv.reader(file) if row and not row[0].startswith("#")]
    for layer, *numbers in lines:
        kernel, size, inputs, outputs, stride = map(int, numbers[:5])
        for column, figure in zip(header[6:], numbers[5:], strict=True):
            if not figure:
                continue
            batch, edge = int(column[1:]), kernel // 2
            function = traced.convolve((size, size), (kernel, kernel), stride, [(edge, edge)] * 2, 1)
            given = traced.array(batch, size, size, inputs), traced.array(kernel, kernel, inputs, outputs)
            result = jax.eval_shape(function, *given)
            cycles = traced.cycles(jax.make_jaxpr(function)(*given), MK1) * constants.HARDWARE_FACTOR
            flops = 2.0 * math.prod(result.shape) * inputs * kernel * kernel
            yield Row(f"{kernel}x{kernel}", f"{layer} {column}", float(figure), flops / cycles * MK1.clock_hz / 1e12)


def _pair(text: str) -> tuple[int, int]:
    first, *rest = text.strip("{}").split(",")
    return int(first), int(rest[0] if rest else first)


def chips() -> tuple[Target, ...]:
    return MK2, MK1
