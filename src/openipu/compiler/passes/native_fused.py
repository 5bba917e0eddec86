"""Convolutions by kernels that also do what follows: windows of 3x3 by Winograd's algorithm, few inputs directly.

A convolution becomes a call when it is met. If bias, rectifier and maxima of 2x2 follow it and nobody else reads what
is between them, each makes a call that does more out of the one before, which is dead then.
"""

import math
from typing import TYPE_CHECKING

import attrs
import jax.numpy as jnp
from jax import lax
from jax.extend.core import JaxprEqn, Literal

from openipu.compiler import native
from openipu.compiler.native.fused import Kind, Layer, Side, compute
from openipu.compiler.passes.jaxprs import Atom, aval_of
from openipu.compiler.passes.kernels import COPY
from openipu.compiler.passes.layout import Order, Stored, distances

if TYPE_CHECKING:
    from openipu.compiler.passes.rewriter import Rewriter

# Times are in multiply-adds of XLA's matrix product, as those of its forms are. A call, with the threads it wakes:
_CALL = 1_000_000
# Winograd: one multiply-add, one weight transformed for a spot.
_PRODUCT, _WEIGHT = 0.8, 80
# Results of its tiles in one dimension; one number transformed on its way in or out.
_TILES = {Kind.WINOGRAD: (2, 7), Kind.WIDE_WINOGRAD: (4, 12)}
_FEWEST_CHANNELS = 8
# Directly: one multiply-add. Writing the result, which takes longer than that, is not counted for other kernels either.
_DIRECT = 0.75
_MOST_INPUTS = 4
_VECTOR = 16


@attrs.frozen
class Call:
    """A call of a native kernel.

    Attributes:
      kind, layer: what it computes.
      source: the input, and the order in which it has the channels innermost.
      weights: the array of weights.
      bias: one number for each output; None for zeros.
      spec: the dimensions of the result as the program names them: batch, channels, rows, columns.
    """

    kind: Kind
    layer: Layer
    source: tuple[Atom, Order]
    weights: Atom
    bias: Atom | None
    spec: Order

    def cost(self, rewriter: "Rewriter") -> float:
        """Time of a step in multiply-adds."""
        (source, order), lanes = self.source, rewriter.lanes
        moved = rewriter.stored(source).size * 2 * COPY if rewriter.stored(source).order != order else 0
        # Lanes become a larger batch.
        return self._call_cost(attrs.evolve(self.layer, batch=self.layer.batch * lanes)) / lanes + moved

    def _call_cost(self, layer: Layer) -> float:
        inputs, vectors = (math.ceil(count / _VECTOR) * _VECTOR for count in (layer.inputs, layer.outputs))
        if self.kind is Kind.SHALLOW:
            return _CALL + layer.results * vectors * layer.positions * layer.inputs * _DIRECT
        tile, number = _TILES[self.kind]
        each = layer.inputs * vectors * _PRODUCT + (inputs + vectors) * number
        return _CALL + (tile + 2) ** 2 * (layer.tiles(tile) * each + layer.inputs * layer.outputs * _WEIGHT)

    def emit(self, rewriter: "Rewriter") -> list[Stored]:
        """Adds the call and returns how its result is stored."""
        given = [rewriter.ordered(*self.source), self.weights]
        given.append(self.bias or rewriter.emit(lambda: jnp.zeros(self.layer.outputs, jnp.float32)))
        made = rewriter.emit(lambda x, w, b: compute(self.kind, x, w, b, self.layer), *given)
        return [Stored(made, _channels_last(self.spec))]


def calls(rewriter: "Rewriter", eqn: JaxprEqn) -> list[Call]:
    """The ways to compute a convolution by these kernels."""
    params = eqn.params
    dtypes = {aval_of(v).dtype.name for v in (*eqn.invars, *eqn.outvars)}
    plain = params["feature_group_count"] * params["batch_group_count"] == 1
    plain = plain and all(d == 1 for d in (*params["lhs_dilation"], *params["rhs_dilation"]))
    if native.library() is None or dtypes != {"float32"} or len(params["window_strides"]) != 2 or not plain:
        return []
    layer, weights = _layer(rewriter, eqn)
    kinds = [kind for kind, takes in _TAKES.items() if takes(layer)]
    # Who asks for the most exact result gets plain sums.
    if params["precision"] is not None and lax.Precision.HIGHEST in params["precision"]:
        kinds = [kind for kind in kinds if kind not in _TILES]
    numbers = params["dimension_numbers"]
    source = (eqn.invars[0], _channels_last(numbers.lhs_spec))
    return [Call(kind, layer, source, weights, None, numbers.out_spec) for kind in kinds]


def _layer(rewriter: "Rewriter", eqn: JaxprEqn) -> tuple[Layer, Atom]:
    """An equation as a layer, and its weights as they are stored before the program reverses some of their space."""
    (lhs, rhs), numbers, params = eqn.invars, eqn.params["dimension_numbers"], eqn.params
    (batch, inputs, *space), (outputs, _, *kernel), (_, _, *windows) = (
        tuple(aval_of(v).shape[dim] for dim in spec)
        for v, spec in ((lhs, numbers.lhs_spec), (rhs, numbers.rhs_spec), (eqn.outvars[0], numbers.out_spec))
    )
    maker = rewriter.maker(rhs)
    is_reversed = maker is not None and maker.primitive.name == "rev"
    reversed_ = tuple(maker.params["dimensions"]) if maker is not None and is_reversed else ()
    stored = rewriter.stored(maker.invars[0] if maker is not None and is_reversed else rhs)
    apart = distances(stored.shape, stored.order)
    first = sum((stored.shape[dim] - 1) * apart[dim] for dim in reversed_)
    steps = tuple(-apart[dim] if dim in reversed_ else apart[dim] for dim in numbers.rhs_spec)
    lows = [int(low) for low, _ in params["padding"]]
    rows, columns = (
        Side(*fields) for fields in zip(space, windows, kernel, params["window_strides"], lows, strict=True)
    )
    return Layer(batch, inputs, outputs, rows, columns, aval_of(stored.atom).shape, (first, *steps)), stored.atom


def _fits_winograd(layer: Layer) -> bool:
    plain = all((side.kernel, side.stride) == (3, 1) for side in (layer.rows, layer.columns))
    return plain and min(layer.inputs, layer.outputs) >= _FEWEST_CHANNELS


def _is_shallow(layer: Layer) -> bool:
    # A kernel larger than the result is the gradient that a layer passed back: sums over a small batch, not a layer.
    windows = layer.rows.windows * layer.columns.windows
    return layer.inputs <= _MOST_INPUTS and layer.outputs >= _FEWEST_CHANNELS and 1 < layer.positions <= windows


_TAKES = {Kind.WINOGRAD: _fits_winograd, Kind.WIDE_WINOGRAD: _fits_winograd, Kind.SHALLOW: _is_shallow}


def _add(rewriter: "Rewriter", eqn: JaxprEqn) -> list[Stored] | None:
    for made, bias in (eqn.invars, eqn.invars[::-1]):
        call = rewriter.call(made)
        if call is None or call.bias is not None or call.layer.rectify or call.layer.pool:
            continue
        vector = _along_channels(rewriter, bias, call)
        if vector is not None:
            return _replaced(rewriter, eqn, attrs.evolve(call, bias=vector))
    return None


def _rectify(rewriter: "Rewriter", eqn: JaxprEqn) -> list[Stored] | None:
    for made, limit in (eqn.invars, eqn.invars[::-1]):
        call = rewriter.call(made)
        if call is not None and not call.layer.pool and _is_zero(rewriter, limit):
            return _replaced(rewriter, eqn, attrs.evolve(call, layer=attrs.evolve(call.layer, rectify=True)))
    return None


def _pool(rewriter: "Rewriter", eqn: JaxprEqn) -> list[Stored] | None:
    call, params = rewriter.call(eqn.invars[0]), eqn.params
    if call is None or call.layer.pool or 0 in aval_of(eqn.outvars[0]).shape:
        return None
    window = tuple(2 if dim in call.spec[2:] else 1 for dim in range(4))
    plain = all(d == 1 for d in (*params["base_dilation"], *params["window_dilation"]))
    unpadded = all(side == (0, 0) for side in map(tuple, params["padding"]))
    if (tuple(params["window_dimensions"]), tuple(params["window_strides"])) != (window, window):
        return None
    if not plain or not unpadded:
        return None
    return _replaced(rewriter, eqn, attrs.evolve(call, layer=attrs.evolve(call.layer, pool=True)))


def _whole_slice(rewriter: "Rewriter", eqn: JaxprEqn) -> list[Stored] | None:
    """A slice that cuts nothing off: PyTorch's pooling has one in front of it."""
    if aval_of(eqn.invars[0]).shape != aval_of(eqn.outvars[0]).shape:
        return None
    call = rewriter.call(eqn.invars[0])
    if call is not None:
        rewriter.note_call(eqn.outvars[0], call)
    return [rewriter.stored(eqn.invars[0])]


def _replaced(rewriter: "Rewriter", eqn: JaxprEqn, call: Call) -> list[Stored]:
    rewriter.note_call(eqn.outvars[0], call)
    return call.emit(rewriter)


def _along_channels(rewriter: "Rewriter", atom: Atom, call: Call) -> Atom | None:
    """The vector that a value repeats in all dimensions but that of channels; None if it is no such value."""
    channels, outputs = call.spec[1], call.layer.outputs
    maker = rewriter.maker(atom)
    if maker is not None and maker.primitive.name == "broadcast_in_dim" and len(maker.invars) == 1:
        (atom,), dims = maker.invars, maker.params["broadcast_dimensions"]
    else:
        dims = tuple(range(len(aval_of(atom).shape)))
    sizes = dict(zip(dims, aval_of(atom).shape, strict=True))
    if isinstance(atom, Literal) or aval_of(atom).dtype != jnp.float32 or sizes.get(channels) != outputs:
        return None
    if math.prod(sizes.values()) != outputs:
        return None
    return rewriter.emit(lambda b: lax.reshape(b, (outputs,)), rewriter.plain(atom))


def _is_zero(rewriter: "Rewriter", atom: Atom) -> bool:
    maker = rewriter.maker(atom)
    if maker is not None and maker.primitive.name == "broadcast_in_dim":
        atom = maker.invars[0]
    return isinstance(atom, Literal) and not aval_of(atom).shape and atom.val == 0


def _channels_last(spec: Order) -> Order:
    return (spec[0], *spec[2:], spec[1])


# Tried before the rules that keep these equations as they are.
FIRST = {"add": _add, "max": _rectify, "reduce_window_max": _pool, "slice": _whole_slice}
