"""Convolutions as copied patches and matrix products, or as native kernels: each in the form that costs least."""

import math
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import JaxprEqn

from openipu.compiler.passes import native_convolution, native_direct, native_fused
from openipu.compiler.passes.jaxprs import aval_of
from openipu.compiler.passes.kernels import COPY, FORMS, Gather, Geometry
from openipu.compiler.passes.layout import Order, Stored

if TYPE_CHECKING:
    from openipu.compiler.passes.rewriter import Rewriter

# A vector of the narrowest machines we meet; below it the batch is no good as the innermost dimension.
_SMALLEST_INNER_BATCH = 8
# Patches repeat the input once for each position of the kernel; beyond this XLA's own loop is the lesser evil.
_MOST_PATCH_BYTES = 1 << 29
# Who has native kernels.
_FAMILIES = (native_convolution, native_direct, native_fused)


def _convolution(rewriter: "Rewriter", eqn: JaxprEqn) -> list[Stored] | None:
    lhs, rhs = eqn.invars
    out = aval_of(eqn.outvars[0])
    if not (jnp.issubdtype(aval_of(lhs).dtype, jnp.floating) and jnp.issubdtype(out.dtype, jnp.floating)):
        return None
    if 0 in (*aval_of(lhs).shape, *aval_of(rhs).shape, *out.shape) or aval_of(lhs).dtype != aval_of(rhs).dtype:
        return None
    geometry = _geometry(eqn)
    form = min(FORMS, key=lambda form: _cost(rewriter, eqn, form, geometry))
    calls = [call for family in _FAMILIES for call in family.calls(rewriter, eqn)]
    call = min(calls, key=lambda call: call.cost(rewriter), default=None)
    if call is not None and call.cost(rewriter) < _cost(rewriter, eqn, form, geometry):
        if isinstance(call, native_fused.Call):
            rewriter.note_call(eqn.outvars[0], call)
        return call.emit(rewriter)
    if math.isinf(form.cost(geometry)) or form.patch_elements(geometry) * 4 > _MOST_PATCH_BYTES:
        return None
    batch_inner = _batch_inner(form, geometry)
    lhs_order, rhs_order = _orders(eqn, form, geometry)
    numbers = eqn.params["dimension_numbers"]
    out_order = form.out_order(batch_inner, len(geometry.kernel))
    accumulate = jnp.promote_types(out.dtype, jnp.float32)

    def compute(x: jax.Array, w: jax.Array) -> jax.Array:
        x, w = _grouped(x, w, geometry, form.lhs_leading(geometry), batch_inner)
        y = form.compute(x, w, geometry, batch_inner, accumulate, eqn.params["precision"])
        return y.astype(out.dtype)

    y = rewriter.emit(compute, rewriter.ordered(lhs, lhs_order), rewriter.ordered(rhs, rhs_order))
    # Kernels return (batch, features, *space) by name; the program may call these dimensions by other numbers.
    return [Stored(y, tuple(numbers.out_spec[name] for name in out_order))]


def _batch_inner(form: Gather, geometry: Geometry) -> bool:
    return form.batch(geometry) >= _SMALLEST_INNER_BATCH


def _orders(eqn: JaxprEqn, form: Gather, geometry: Geometry) -> tuple[Order, Order]:
    """Returns the orders in which a form wants its two operands."""
    numbers, batch_inner = eqn.params["dimension_numbers"], _batch_inner(form, geometry)
    lhs = _order(numbers.lhs_spec, form.lhs_leading(geometry), batch_inner)
    return lhs, _order(numbers.rhs_spec, 0, batch_inner)


def _cost(rewriter: "Rewriter", eqn: JaxprEqn, form: Gather, geometry: Geometry) -> float:
    """Returns the time a form takes, with the transposes it needs first."""
    wanted = zip(eqn.invars, _orders(eqn, form, geometry), strict=True)
    stored = [(rewriter.stored(atom), order) for atom, order in wanted]
    return form.cost(geometry) + sum(value.size * 2 * COPY for value, order in stored if value.order != order)


def _geometry(eqn: JaxprEqn) -> Geometry:
    params, numbers = eqn.params, eqn.params["dimension_numbers"]
    lhs, rhs = (aval_of(atom).shape for atom in eqn.invars)
    out = aval_of(eqn.outvars[0]).shape
    batch_groups, feature_groups = params["batch_group_count"], params["feature_group_count"]
    return Geometry(
        groups=batch_groups * feature_groups,
        batch_grouped=batch_groups > 1,
        batch=lhs[numbers.lhs_spec[0]] // batch_groups,
        inputs=rhs[numbers.rhs_spec[1]],
        outputs=rhs[numbers.rhs_spec[0]] // (batch_groups * feature_groups),
        space=tuple(lhs[d] for d in numbers.lhs_spec[2:]),
        kernel=tuple(rhs[d] for d in numbers.rhs_spec[2:]),
        windows=tuple(out[d] for d in numbers.out_spec[2:]),
        strides=tuple(params["window_strides"]),
        padding=tuple((int(low), int(high)) for low, high in params["padding"]),
        lhs_dilation=tuple(params["lhs_dilation"]),
        rhs_dilation=tuple(params["rhs_dilation"]),
    )


def _order(spec: tuple[int, ...], leading: int, batch_inner: bool) -> Order:
    """Returns the order (leading, *space, other), or (other, *space, leading) when the batch is not innermost."""
    first, last = spec[leading], spec[1 - leading]
    return (first, *spec[2:], last) if batch_inner else (last, *spec[2:], first)


def _grouped(
    x: jax.Array, w: jax.Array, geometry: Geometry, leading: int, batch_inner: bool
) -> tuple[jax.Array, jax.Array]:
    """Returns both operands with a first dimension for the group."""
    lhs_sizes = (geometry.batch, geometry.inputs)
    grouped_role = 0 if geometry.batch_grouped else 1
    x = _split(x, geometry.groups, lhs_sizes[grouped_role], first=(grouped_role == leading) == batch_inner)
    w = _split(w, geometry.groups, geometry.outputs, first=batch_inner)
    return x, w


def _split(x: jax.Array, groups: int, size: int, first: bool) -> jax.Array:
    if groups == 1:
        return lax.expand_dims(x, [0])
    if first:
        return lax.reshape(x, (groups, size, *x.shape[1:]))
    x = lax.reshape(x, (*x.shape[:-1], groups, size))
    return lax.transpose(x, (x.ndim - 2, *range(x.ndim - 2), x.ndim - 1))


RULES = {"conv_general_dilated": _convolution}
