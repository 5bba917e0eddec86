"""Convolutions by native kernels, where these take less time than any form that XLA computes.

One equation can be read as a layer's convolution or as one of its gradients; each reading is a `Call` with its cost.
"""

import math
from typing import TYPE_CHECKING

import attrs
from jax import lax
from jax.extend.core import JaxprEqn

from openipu.compiler import native
from openipu.compiler.native.convolution import TYPES, Kind, Layer, convolution, implementation
from openipu.compiler.passes.jaxprs import Atom, aval_of
from openipu.compiler.passes.kernels import COPY
from openipu.compiler.passes.layout import Order, Stored, identity

if TYPE_CHECKING:
    from openipu.compiler.passes.rewriter import Rewriter

# Times are in multiply-adds of XLA's matrix product, as those of its forms are. A call, with the threads it wakes:
_CALL = 1_000_000
# One multiply-add; the gradient of weights sums over a dimension that is not innermost. It was 1.4 on a processor with
# AVX2 and is less than 1 on one with AVX-512, where copying patches costs more of XLA's multiply-adds: in between.
_RATE = {Kind.FORWARD: 0.8, Kind.DATA_GRADIENT: 0.8, Kind.WEIGHT_GRADIENT: 1.1}
# Winograd's gradient of weights: one multiply-add, one sum transformed back.
_PRODUCT, _SUM = 0.8, 20
# Windows of its tiles in one dimension; one number transformed on its way in.
_TILES = {Kind.WINOGRAD_WEIGHT_GRADIENT: (2, 7), Kind.WIDE_WINOGRAD_WEIGHT_GRADIENT: (4, 12)}
_FEWEST_CHANNELS = 16
# What oneDNN runs where it has no kernel of its own: loops, or patches and products as XLA's forms are.
_POOR = ("ref", "gemm:")
# oneDNN computes channels side by side, and fills what is missing to a vector.
_SHORTEST_VECTOR = 8
_VECTOR = 16
# One weight, brought into oneDNN's order or back.
_WEIGHT = 35


@attrs.frozen
class Call:
    """A call of a native kernel.

    Attributes:
      kind, layer: what it computes.
      activations: the operands with the channels innermost, and the order in which they have them so.
      weights: the weights and how they are stored; None for their gradient.
      flip: dimensions, as stored, in which the weights must be reversed first.
      flipped: whether the program reverses them, only for this.
      out_order: how the result is stored.
    """

    kind: Kind
    layer: Layer
    activations: tuple[tuple[Atom, Order], ...]
    weights: Stored | None
    flip: tuple[int, ...]
    flipped: bool
    out_order: Order

    def cost(self, rewriter: "Rewriter") -> float:
        """Time of a step in multiply-adds; infinite if there is no good kernel for it."""
        # Lanes become a larger batch, except where there is no batch in the result.
        lanes = 1 if self.kind.of_weights else rewriter.lanes
        layer = attrs.evolve(self.layer, batch=self.layer.batch * lanes)
        stored = [(rewriter.stored(atom), order) for atom, order in self.activations]
        moved = sum(value.size * 2 * COPY for value, order in stored if value.order != order)
        if self.kind in _TILES:
            return self._winograd_cost(*_TILES[self.kind]) + moved
        library = native.library()
        if library is None or not self.layer.ordinary or self._vector < _SHORTEST_VECTOR:
            return math.inf
        found = implementation(library, self.kind, layer, aval_of(self.activations[0][0]).dtype.name)
        if not found or any(name in found for name in _POOR):
            return math.inf
        each = -2 * COPY if self._transposed_anyway else _WEIGHT
        weights = math.prod(self.layer.weights) * (each + 2 * COPY * (self.flipped or bool(self.flip)))
        filled = math.ceil(self._vector / _VECTOR) * _VECTOR / self._vector if self.layer.groups == 1 else 1
        return (_CALL + layer.multiplications * filled * _RATE[self.kind] + weights) / lanes + moved

    def _winograd_cost(self, tile: int, number: int) -> float:
        inputs, outputs = self.layer.inputs, self.layer.outputs
        each = inputs * math.ceil(outputs / _VECTOR) * _VECTOR * _PRODUCT + (inputs + outputs) * number
        return _CALL + (tile + 2) ** 2 * (self.layer.tiles(tile) * each + inputs * outputs * _SUM)

    @property
    def _transposed_anyway(self) -> bool:
        """Whether a product with patches, which has channels innermost, would be transposed after it: that is saved."""
        channels = self.layer.weight_strides[1:3]
        return self.kind is Kind.WEIGHT_GRADIENT and math.prod(self.layer.kernel) > 1 and 1 not in channels

    @property
    def _vector(self) -> int:
        """How many channels the kernel computes side by side."""
        return self.layer.inputs if self.kind is Kind.DATA_GRADIENT else self.layer.outputs

    def emit(self, rewriter: "Rewriter") -> list[Stored]:
        """Adds the call and returns how its result is stored."""
        operands = [rewriter.ordered(atom, order) for atom, order in self.activations]
        if self.weights is not None:
            flipped = rewriter.emit(lambda w: lax.rev(w, self.flip), self.weights.atom) if self.flip else None
            operands.append(flipped or self.weights.atom)
        made = rewriter.emit(lambda a, b: convolution(self.kind, a, b, self.layer), *operands)
        return [Stored(made, self.out_order)]


def calls(rewriter: "Rewriter", eqn: JaxprEqn) -> list[Call]:
    """Every way to compute a convolution by a native kernel; none without the library."""
    dtypes = {aval_of(v).dtype for v in (*eqn.invars, *eqn.outvars)}
    rank = len(eqn.params["window_strides"])
    if native.library() is None or len(dtypes) > 1 or dtypes.pop().name not in TYPES or not 1 <= rank <= 3:
        return []
    # A kernel larger than the result is the gradient that a layer passed back, and the result that of its weights.
    numbers = eqn.params["dimension_numbers"]
    large = math.prod(_sizes(eqn.invars[1], numbers.rhs_spec)[2:])
    small = math.prod(_sizes(eqn.outvars[0], numbers.out_spec)[2:])
    readings = (_weight_gradient,) if large > small else (_forward, _data_gradient)
    made = [call for read in readings if (call := read(rewriter, eqn)) is not None]
    return [*made, *(call for one in made for call in _by_winograd(one, eqn))]


def _forward(rewriter: "Rewriter", eqn: JaxprEqn) -> Call | None:
    params, numbers = eqn.params, eqn.params["dimension_numbers"]
    if params["batch_group_count"] > 1 or any(d > 1 for d in params["lhs_dilation"]):
        return None
    lhs, rhs = eqn.invars
    x, w, y = _sizes(lhs, numbers.lhs_spec), _sizes(rhs, numbers.rhs_spec), _sizes(eqn.outvars[0], numbers.out_spec)
    weights, groups = rewriter.stored(rhs), params["feature_group_count"]
    layer = Layer(
        groups=groups, batch=x[0], inputs=x[1], outputs=y[1], space=x[2:], windows=y[2:], kernel=w[2:],
        strides=tuple(params["window_strides"]), dilations=tuple(params["rhs_dilation"]),
        low=tuple(int(low) for low, _ in params["padding"]),
        weights=aval_of(weights.atom).shape,
        weight_strides=_weight_strides(weights, numbers.rhs_spec, groups, grouped=0),
    )  # fmt: skip
    activations = ((lhs, _channels_last(numbers.lhs_spec)),)
    flipped = _before_reversal(rewriter, rhs, numbers.rhs_spec[2:]) is not None
    return Call(Kind.FORWARD, layer, activations, weights, (), flipped, _channels_last(numbers.out_spec))


def _data_gradient(rewriter: "Rewriter", eqn: JaxprEqn) -> Call | None:
    params, numbers = eqn.params, eqn.params["dimension_numbers"]
    if params["batch_group_count"] > 1 or any(s > 1 for s in params["window_strides"]):
        return None
    lhs, rhs = eqn.invars
    y, w, x = _sizes(lhs, numbers.lhs_spec), _sizes(rhs, numbers.rhs_spec), _sizes(eqn.outvars[0], numbers.out_spec)
    # The layer's own weights are found behind the reversal that a gradient begins with, if it has one.
    original = _before_reversal(rewriter, rhs, numbers.rhs_spec[2:])
    weights, groups = rewriter.stored(original or rhs), params["feature_group_count"]
    wrong = [] if original is not None else [dim for dim in numbers.rhs_spec[2:] if aval_of(rhs).shape[dim] > 1]
    flip = tuple(weights.position[dim] for dim in wrong)
    dilations, padding = tuple(params["rhs_dilation"]), params["padding"]
    layer = Layer(
        groups=groups, batch=x[0], inputs=x[1], outputs=y[1], space=x[2:], windows=y[2:], kernel=w[2:],
        strides=tuple(params["lhs_dilation"]), dilations=dilations,
        low=tuple((k - 1) * d - int(low) for k, d, (low, _) in zip(w[2:], dilations, padding, strict=True)),
        weights=aval_of(weights.atom).shape,
        # What the layer calls outputs are the inputs of the equation.
        weight_strides=_weight_strides(weights, _swapped(numbers.rhs_spec), groups, grouped=1),
    )  # fmt: skip
    activations = ((lhs, _channels_last(numbers.lhs_spec)),)
    return Call(Kind.DATA_GRADIENT, layer, activations, weights, flip, False, _channels_last(numbers.out_spec))


def _weight_gradient(rewriter: "Rewriter", eqn: JaxprEqn) -> Call | None:
    params, numbers = eqn.params, eqn.params["dimension_numbers"]
    if params["feature_group_count"] > 1 or any(d > 1 for d in params["lhs_dilation"]):
        return None
    # What the equation calls batch are the layer's channels, what it sums over is the layer's batch.
    (lhs, rhs), out = eqn.invars, eqn.outvars[0]
    lhs_spec, rhs_spec = _swapped(numbers.lhs_spec), _swapped(numbers.rhs_spec)
    x, y, groups = _sizes(lhs, lhs_spec), _sizes(rhs, rhs_spec), params["batch_group_count"]
    order = identity(len(aval_of(out).shape))
    layer = Layer(
        groups=groups, batch=x[0], inputs=x[1], outputs=y[1], space=x[2:], windows=y[2:],
        kernel=_sizes(out, numbers.out_spec)[2:],
        strides=tuple(params["rhs_dilation"]), dilations=tuple(params["window_strides"]),
        low=tuple(int(low) for low, _ in params["padding"]),
        weights=aval_of(out).shape,
        weight_strides=_weight_strides(Stored(out, order), _swapped(numbers.out_spec), groups, grouped=0),
    )  # fmt: skip
    activations = ((lhs, _channels_last(lhs_spec)), (rhs, _channels_last(rhs_spec)))
    return Call(Kind.WEIGHT_GRADIENT, layer, activations, None, (), False, order)


def _by_winograd(call: Call, eqn: JaxprEqn) -> list[Call]:
    """The same gradient of weights by Winograd's algorithm."""
    layer, precision = call.layer, eqn.params["precision"]
    # Who asks for the most exact result gets plain sums.
    exact = precision is not None and lax.Precision.HIGHEST in precision
    if call.kind is not Kind.WEIGHT_GRADIENT or exact or aval_of(eqn.outvars[0]).dtype.name != "float32":
        return []
    plain = (layer.groups, layer.kernel, layer.strides, layer.dilations) == (1, (3, 3), (1, 1), (1, 1))
    if not plain or min(layer.inputs, layer.outputs) < _FEWEST_CHANNELS:
        return []
    return [attrs.evolve(call, kind=kind) for kind in _TILES]


def _before_reversal(rewriter: "Rewriter", weights: Atom, space: Order) -> Atom | None:
    """What weights were before all of their space was reversed; None if they were not."""
    maker = rewriter.maker(weights)
    sizes = aval_of(weights).shape
    if maker is None or maker.primitive.name != "rev":
        return None
    wanted = {dim for dim in space if sizes[dim] > 1}
    reversed_ = {dim for dim in maker.params["dimensions"] if sizes[dim] > 1}
    return maker.invars[0] if wanted == reversed_ else None


def _weight_strides(weights: Stored, spec: Order, groups: int, grouped: int) -> tuple[int, ...]:
    """Strides of weights as (groups, outputs of a group, inputs of a group, *kernel).

    Args:
      weights: how they are stored.
      spec: the program's dimensions of the layer's outputs, its inputs, and the kernel's space.
      groups: how many there are.
      grouped: which of these dimensions holds all groups: outputs (0) or inputs (1).
    """
    sizes, steps, step = weights.shape, {}, 1
    for dim in reversed(weights.order):
        steps[dim] = step
        step *= sizes[dim]
    group = sizes[spec[grouped]] // groups * steps[spec[grouped]]
    return (group, *(steps[dim] for dim in spec))


def _sizes(atom: Atom, spec: Order) -> tuple[int, ...]:
    return tuple(aval_of(atom).shape[dim] for dim in spec)


def _swapped(spec: Order) -> Order:
    return (spec[1], spec[0], *spec[2:])


def _channels_last(spec: Order) -> Order:
    return (spec[0], *spec[2:], spec[1])
