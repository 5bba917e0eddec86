"""Matrix products, convolutions and attention."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax
from torch.fx import Node

from openipu.torch.aten.activation import safe_softmax
from openipu.torch.aten.dtypes import Scalar, is_bool, wide
from openipu.torch.aten.registry import Context, op

aten = torch.ops.aten


@op(aten.mm, aten.bmm, aten.matmul, aten.mv, aten.dot, aten.vdot)
def _matmul(a: jax.Array, b: jax.Array, *_: Any) -> jax.Array:
    return jnp.matmul(a, b)


@op(aten.linear)
def _linear(x: jax.Array, weight: jax.Array, bias: jax.Array | None = None) -> jax.Array:
    product = lax.dot_general(x, weight, (((x.ndim - 1,), (weight.ndim - 1,)), ((), ())))
    return product if bias is None else product + bias


@op(aten.addmm, aten.baddbmm, aten.addmv)
def _addmm(x: jax.Array, a: jax.Array, b: jax.Array, *, beta: Scalar = 1, alpha: Scalar = 1, **_: Any) -> jax.Array:
    return _blend(x, jnp.matmul(a, b), beta, alpha)


@op(aten.addbmm)
def _addbmm(x: jax.Array, a: jax.Array, b: jax.Array, *, beta: Scalar = 1, alpha: Scalar = 1) -> jax.Array:
    return _blend(x, jnp.einsum("bij,bjk->ik", a, b), beta, alpha)


def _blend(x: jax.Array, product: jax.Array, beta: Scalar, alpha: Scalar) -> jax.Array:
    """beta * x + alpha * product; what is multiplied by zero is left out by definition, even when it holds NaN."""
    if alpha == 0:
        product = jnp.zeros(product.shape, product.dtype)
    elif alpha != 1:
        product = product * jnp.asarray(alpha, product.dtype)
    if beta == 0:
        return product + jnp.zeros(x.shape, product.dtype)
    return product + (x if beta == 1 else x * jnp.asarray(beta, x.dtype))


@op(aten.einsum)
def _einsum(equation: str, tensors: Sequence[jax.Array], path: Any = None) -> jax.Array:
    return jnp.einsum(equation.replace(" ", ""), *tensors)


@op(aten.convolution)
def convolution(
    x: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> jax.Array:
    """Convolution of any rank, channels before space, as torch defines it."""
    rank = weight.ndim - 2
    unbatched = x.ndim == rank + 1
    if unbatched:
        x = x[None]
    stride, padding, dilation, output_padding = (
        tuple(values) * (rank if len(values) == 1 else 1) for values in (stride, padding, dilation, output_padding)
    )
    spatial = "DHW"[-rank:] if rank <= 3 else ""
    names = ("NC" + spatial, "OI" + spatial, "NC" + spatial)
    if transposed:
        weight = _turned(weight, groups)
        reach = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        pads = [(r - p, r - p + o) for r, p, o in zip(reach, padding, output_padding, strict=True)]
        strides, spread = (1,) * rank, stride
    else:
        pads = [(p, p) for p in padding]
        strides, spread = stride, (1,) * rank
    result = lax.conv_general_dilated(
        x,
        weight,
        strides,
        pads,
        lhs_dilation=spread,
        rhs_dilation=dilation,
        dimension_numbers=names,
        feature_group_count=groups,
    )
    if bias is not None:
        result = result + bias.reshape(-1, *(1,) * rank)
    return result[0] if unbatched else result


def _turned(weight: jax.Array, groups: int) -> jax.Array:
    """The kernel of a transposed convolution as that of the ordinary one over the spread-out input."""
    inputs, outputs, *window = weight.shape
    weight = weight.reshape(groups, inputs // groups, outputs, *window).swapaxes(1, 2)
    weight = weight.reshape(groups * outputs, inputs // groups, *window)
    return lax.rev(weight, range(2, weight.ndim))


def _drops(node: Node) -> bool:
    dropout = node.args[4] if len(node.args) > 4 else node.kwargs.get("dropout_p", 0)
    return bool(dropout)


@op(aten.scaled_dot_product_attention, random=_drops)
def _attention(
    context: Context,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    attn_mask: jax.Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> jax.Array:
    if enable_gqa:
        key, value = (jnp.repeat(x, query.shape[-3] // x.shape[-3], axis=-3) for x in (key, value))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = wide(jnp.einsum("...qd,...kd->...qk", query, key)) * scale
    if is_causal:
        attn_mask = jnp.asarray(np.tri(*scores.shape[-2:], dtype=bool))
    if attn_mask is not None:
        scores = jnp.where(attn_mask, scores, -jnp.inf) if is_bool(attn_mask) else scores + attn_mask
        weights = safe_softmax(scores, -1)
    else:
        weights = jax.nn.softmax(scores, axis=-1)
    if dropout_p > 0:
        kept = jax.random.bernoulli(context.drawing_key, 1 - dropout_p, weights.shape)
        weights = jnp.where(kept, weights / (1 - dropout_p), jnp.zeros_like(weights))
    return jnp.einsum("...qk,...kd->...qd", weights.astype(value.dtype), value)
