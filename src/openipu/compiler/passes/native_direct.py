"""Convolutions of few channels by native kernels that compute the batch side by side.

A layer's convolution and the gradient of its input are both read as the program writes them; only the gradient of
weights is another kernel.
"""

import math
from typing import TYPE_CHECKING

import attrs
from jax.extend.core import JaxprEqn

from openipu.compiler import native
from openipu.compiler.native.direct import Kind, Layer, Side, Sizes, compute
from openipu.compiler.passes.jaxprs import Atom, aval_of
from openipu.compiler.passes.kernels import COPY
from openipu.compiler.passes.layout import Order, Stored, identity

if TYPE_CHECKING:
    from openipu.compiler.passes.rewriter import Rewriter

# Times are in multiply-adds of XLA's matrix product, as those of its forms are. A call, with the threads it wakes:
_CALL = 500_000
# One multiply-add; the gradient of weights reads two arrays for each, and is bound by that.
_RATE = {Kind.CONVOLUTION: 0.7, Kind.WEIGHT_GRADIENT: 1.6}
# Numbers of the batch that are computed at once, whether it has as many or not.
_VECTOR = 16
_SMALLEST_BATCH = 8
# With more channels on either side oneDNN's vectors are full too, its gradient of weights is faster, and what follows
# wants the channels innermost: to move a large result there would cost more than a faster kernel gains.
_MOST_CHANNELS = 12


@attrs.frozen
class Call:
    """A call of a native kernel.

    Attributes:
      kind, layer: what it computes.
      activations: the operands with the batch innermost, and the order in which they have it so.
      weights: the array of weights; None for their gradient.
      out_order: how the result is stored.
    """

    kind: Kind
    layer: Layer
    activations: tuple[tuple[Atom, Order], ...]
    weights: Atom | None
    out_order: Order

    def cost(self, rewriter: "Rewriter") -> float:
        """Time in multiply-adds; infinite where products of matrices are better in any case."""
        layer = self.layer
        positions = layer.rows.kernel * layer.columns.kernel
        many = max(layer.inputs, layer.outputs) > _MOST_CHANNELS
        if layer.batch < _SMALLEST_BATCH or positions == 1 or many:
            return math.inf
        stored = [(rewriter.stored(atom), order) for atom, order in self.activations]
        moved = sum(value.size * 2 * COPY for value, order in stored if value.order != order)
        batch = math.ceil(layer.batch / _VECTOR) * _VECTOR
        return _CALL + layer.multiplications * batch * _RATE[self.kind] + moved

    def emit(self, rewriter: "Rewriter") -> list[Stored]:
        """Adds the call and returns how its result is stored."""
        operands = [rewriter.ordered(atom, order) for atom, order in self.activations]
        operands += [] if self.weights is None else [self.weights]
        made = rewriter.emit(lambda a, b: compute(self.kind, a, b, self.layer), *operands)
        return [Stored(made, self.out_order)]


def calls(rewriter: "Rewriter", eqn: JaxprEqn) -> list[Call]:
    """The way to compute a convolution by these kernels, if there is one."""
    params = eqn.params
    dtypes = {aval_of(v).dtype.name for v in (*eqn.invars, *eqn.outvars)}
    groups = params["feature_group_count"] * params["batch_group_count"]
    if native.library() is None or dtypes != {"float32"} or not 1 <= len(params["window_strides"]) <= 2 or groups > 1:
        return []
    # A kernel larger than the result is the gradient that a layer passed back, and the result that of its weights.
    numbers = params["dimension_numbers"]
    large = math.prod(aval_of(eqn.invars[1]).shape[dim] for dim in numbers.rhs_spec[2:])
    small = math.prod(aval_of(eqn.outvars[0]).shape[dim] for dim in numbers.out_spec[2:])
    if large <= small:
        return [_convolution(rewriter, eqn)]
    return [] if any(d > 1 for d in params["lhs_dilation"]) else [_weight_gradient(rewriter, eqn)]


def _convolution(rewriter: "Rewriter", eqn: JaxprEqn) -> Call:
    params, numbers = eqn.params, eqn.params["dimension_numbers"]
    (lhs, rhs), out = eqn.invars, eqn.outvars[0]
    x, w, y = (aval_of(v).shape for v in (lhs, rhs, out))
    in_order = _batch_last(rewriter.stored(lhs).order, numbers.lhs_spec[0])
    out_order = _batch_last(identity(len(y)), numbers.out_spec[0])
    weights, reversed_ = _weights(rewriter, rhs)
    rows, columns = _sides(
        _sizes(x, numbers.lhs_spec[2:]), _sizes(y, numbers.out_spec[2:]), _sizes(w, numbers.rhs_spec[2:]),
        params["window_strides"], params["rhs_dilation"], tuple(int(low) for low, _ in params["padding"]),
        params["lhs_dilation"],
    )  # fmt: skip
    layer = Layer(
        batch=x[numbers.lhs_spec[0]], inputs=x[numbers.lhs_spec[1]], outputs=y[numbers.out_spec[1]],
        rows=rows, columns=columns,
        source=_sizes(x, in_order), target=_sizes(y, out_order), weights=aval_of(weights.atom).shape,
        source_steps=_steps(x, in_order, numbers.lhs_spec[1:]), target_steps=_steps(y, out_order, numbers.out_spec[1:]),
        weight_steps=_weight_steps(weights.shape, weights.order, numbers.rhs_spec, reversed_),
    )  # fmt: skip
    return Call(Kind.CONVOLUTION, layer, ((lhs, in_order),), weights.atom, out_order)


def _weight_gradient(rewriter: "Rewriter", eqn: JaxprEqn) -> Call:
    params, numbers = eqn.params, eqn.params["dimension_numbers"]
    # What the equation calls batch are the layer's channels, what it sums over is the layer's batch.
    (lhs, rhs), out = eqn.invars, eqn.outvars[0]
    x, y, w = (aval_of(v).shape for v in (lhs, rhs, out))
    in_order, gradient_order = (
        _batch_last(rewriter.stored(atom).order, spec[1])
        for atom, spec in ((lhs, numbers.lhs_spec), (rhs, numbers.rhs_spec))
    )
    rows, columns = _sides(
        _sizes(x, numbers.lhs_spec[2:]), _sizes(y, numbers.rhs_spec[2:]), _sizes(w, numbers.out_spec[2:]),
        params["rhs_dilation"], params["window_strides"], tuple(int(low) for low, _ in params["padding"]),
        params["lhs_dilation"],
    )  # fmt: skip
    out_order = identity(len(w))
    inputs, outputs, *space = numbers.out_spec
    layer = Layer(
        batch=x[numbers.lhs_spec[1]], inputs=x[numbers.lhs_spec[0]], outputs=y[numbers.rhs_spec[0]],
        rows=rows, columns=columns,
        source=_sizes(x, in_order), target=_sizes(y, gradient_order), weights=w,
        source_steps=_steps(x, in_order, (numbers.lhs_spec[0], *numbers.lhs_spec[2:])),
        target_steps=_steps(y, gradient_order, (numbers.rhs_spec[0], *numbers.rhs_spec[2:])),
        weight_steps=_weight_steps(w, out_order, (outputs, inputs, *space), ()),
    )  # fmt: skip
    return Call(Kind.WEIGHT_GRADIENT, layer, ((lhs, in_order), (rhs, gradient_order)), None, out_order)


def _batch_last(order: Order, batch: int) -> Order:
    """The order itself if it has the batch innermost, else the program's order with the batch moved there.

    The latter is what stays in place when a network ends its space by a reshape to (batch, everything else).
    """
    return order if order[-1] == batch else (*(dim for dim in identity(len(order)) if dim != batch), batch)


def _sides(*columns: Sizes) -> tuple[Side, Side]:
    """Rows and columns, from each of `Side`'s fields for all dimensions of space."""
    sides = [Side(*fields) for fields in zip(*columns, strict=True)]
    return (Side(), sides[0]) if len(sides) == 1 else (sides[0], sides[1])


def _weights(rewriter: "Rewriter", atom: Atom) -> tuple[Stored, tuple[int, ...]]:
    """How weights are stored before the program reverses some of their dimensions, and which."""
    maker = rewriter.maker(atom)
    if maker is None or maker.primitive.name != "rev":
        return rewriter.stored(atom), ()
    return rewriter.stored(maker.invars[0]), tuple(maker.params["dimensions"])


def _sizes(sizes: Sizes, dims: Sizes) -> Sizes:
    return tuple(sizes[dim] for dim in dims)


def _distances(sizes: Sizes, order: Order) -> dict[int, int]:
    """How far apart neighbours of an array are in each of the program's dimensions."""
    return {dim: math.prod(sizes[d] for d in order[place + 1 :]) for place, dim in enumerate(order)}


def _steps(sizes: Sizes, order: Order, dims: Sizes) -> Sizes:
    """How far apart channels, rows and columns are; `dims` are channels and space."""
    distances = _distances(sizes, order)
    channel, *space = (distances[dim] for dim in dims)
    return (channel, *(space if len(space) == 2 else (0, *space)))


def _weight_steps(sizes: Sizes, order: Order, spec: Sizes, reversed_: Sizes) -> Sizes:
    """Where the first weight is, and how far apart outputs, inputs, rows and columns are."""
    distances = _distances(sizes, order)
    first = sum((sizes[dim] - 1) * distances[dim] for dim in reversed_)
    outputs, inputs, *space = (-distances[dim] if dim in reversed_ else distances[dim] for dim in spec)
    return (first, outputs, inputs, *(space if len(space) == 2 else (0, *space)))
