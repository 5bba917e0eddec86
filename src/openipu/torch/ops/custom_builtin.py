"""The custom operations that public programs bring along as compiled libraries, written again in JAX."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from openipu.torch.exceptions import Error
from openipu.torch.ops.ctc import negative_log_likelihood
from openipu.torch.ops.custom_ops import register_custom_op

Inputs = Sequence[jax.Array]
Attributes = Mapping[str, Any]


@register_custom_op("ai.graphcore", "RemapCE")
@register_custom_op("ai.graphcore", "CopyTensor")
def _identity(inputs: Inputs, attributes: Attributes) -> Inputs:
    return list(inputs)


@register_custom_op("com.acme", "LeakyRelu")
@register_custom_op("custom.ops", "LeakyRelu")
def _leaky_relu(inputs: Inputs, attributes: Attributes) -> Inputs:
    (x,) = inputs
    return [jnp.where(x >= 0, x, x * attributes.get("alpha", 0.01))]


@register_custom_op("com.acme", "Cube")
def _cube(inputs: Inputs, attributes: Attributes) -> Inputs:
    x, b = inputs
    return [x**3 + b, x**3]


@register_custom_op("com.acme", "ExpMovAvg", writes={0: 1})
def _moving_average(inputs: Inputs, attributes: Attributes) -> Inputs:
    """(new value, average so far, share of the average that stays) -> the average, written into the second input."""
    new, average, factor = inputs
    return [average * factor + new * (1 - factor)]


@register_custom_op("poptorch.custom_ops", "FastGatherLastDim")
def _gather(inputs: Inputs, attributes: Attributes) -> Inputs:
    """`torch.gather` along the last axis."""
    data, index = inputs
    return [jnp.take_along_axis(data, index.astype(jnp.int32), axis=-1)]


_REDUCTIONS = {"sum": 0, "mean": 1, "none": 2}


@register_custom_op("ai.graphcore", "Ctc")
def _ctc(inputs: Inputs, attributes: Attributes) -> Inputs:
    """(log-probabilities, labels, lengths of inputs, lengths of labels) -> the loss, and its gradient.

    The reduction is a name or its number in `poptorch.ReductionType`; a mean is over examples, of losses divided by the
    numbers of their labels, as in torch.
    """
    log_probs, labels, lengths, label_lengths = inputs
    asked = attributes.get("reduction", "mean")
    reduction = _REDUCTIONS.get(asked, -1) if isinstance(asked, str) else int(asked)
    if reduction not in _REDUCTIONS.values():
        raise Error(f"Ctc: reduction must be one of {list(_REDUCTIONS)} or 0, 1, 2. Received: {asked!r}")
    blank = int(attributes.get("blank", 0))

    def losses(values: jax.Array) -> jax.Array:
        found = negative_log_likelihood(values, labels, lengths, label_lengths, blank)
        if reduction == _REDUCTIONS["mean"]:
            found = found / jnp.maximum(label_lengths, 1) / found.shape[0]
        return found if reduction == _REDUCTIONS["none"] else jnp.sum(found)

    gradient = jax.grad(lambda values: jnp.sum(losses(values)))(lax.stop_gradient(log_probs))
    return [losses(log_probs), gradient]


@register_custom_op("ai.graphcore", "Nms")
def _suppressed(inputs: Inputs, attributes: Attributes) -> Inputs:
    """Boxes without those that overlap a better one of the same class.

    Takes scores [batch, boxes] or [batch, boxes, classes], boxes [batch, boxes, 4] as two corners each and, for scores
    without classes, optionally the class of every box. Gives for `numDetections` places the index of the box, its
    score, the box, its class, and for every example how many places are filled; the others hold -1, zeros and the
    largest int32 as class.
    """
    scores, boxes, *rest = inputs
    count = int(attributes.get("numDetections", 300))
    overlap = float(attributes.get("threshold", 0.5))
    least = float(attributes.get("scoreThreshold", 0.0))
    if scores.ndim == 3:
        kinds = jnp.broadcast_to(jnp.arange(scores.shape[2], dtype=jnp.int32), scores.shape)
    else:
        kinds = rest[0].astype(jnp.int32)[..., None] if rest else jnp.zeros((*scores.shape, 1), jnp.int32)
        scores = scores[..., None]
    one = lambda s, b, k: _detections(s, b, k, count, overlap, least)  # noqa: E731
    return list(jax.vmap(one)(scores, boxes, kinds))


def _detections(
    scores: jax.Array, boxes: jax.Array, kinds: jax.Array, count: int, overlap: float, least: float
) -> tuple[jax.Array, ...]:
    columns = scores.shape[1]
    flat, kind = scores.ravel(), kinds.ravel()
    owner = jnp.arange(flat.size, dtype=jnp.int32) // columns
    corners = boxes.astype(jnp.float32)
    low, high = jnp.minimum(corners[:, :2], corners[:, 2:]), jnp.maximum(corners[:, :2], corners[:, 2:])
    area = jnp.prod(high - low, axis=1)

    def take(open_: jax.Array, _: Any) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        best = jnp.argmax(jnp.where(open_, flat, -jnp.inf))
        found = open_[best]
        box = owner[best]
        shared = jnp.prod(jnp.maximum(jnp.minimum(high, high[box]) - jnp.maximum(low, low[box]), 0), axis=1)
        covered = shared > overlap * (area + area[box] - shared)
        closed = (covered[owner] & (kind == kind[best])) | (jnp.arange(flat.size) == best)
        return open_ & ~(closed & found), (best.astype(jnp.int32), found)

    _, (best, found) = lax.scan(take, flat > least, None, length=count)
    return (
        jnp.where(found, owner[best], -1),
        jnp.where(found, flat[best], 0),
        jnp.where(found[:, None], boxes[owner[best]], 0),
        jnp.where(found, kind[best], np.iinfo(np.int32).max),
        jnp.sum(found, dtype=jnp.int32),
    )
