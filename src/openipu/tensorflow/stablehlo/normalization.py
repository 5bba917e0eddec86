"""The batch-normalisation operations, spelled out in plain arithmetic."""

import math

import jax
import numpy as np
from jax import lax

from openipu.tensorflow.stablehlo.evaluate import Frame
from openipu.tensorflow.stablehlo.parsed.graph import Op
from openipu.tensorflow.stablehlo.registry import op


class _Features:
    """Broadcasting of one value for each feature, and means over everything else."""

    def __init__(self, shape: tuple[int, ...], axis: int) -> None:
        self._shape = shape
        self._axis = axis
        self._others = tuple(i for i in range(len(shape)) if i != axis)
        self.count = math.prod(shape[i] for i in self._others)

    def spread(self, x: jax.Array) -> jax.Array:
        return lax.broadcast_in_dim(x, self._shape, (self._axis,))

    def sum(self, x: jax.Array) -> jax.Array:
        return lax.reduce_sum(x, self._others)

    def mean(self, x: jax.Array) -> jax.Array:
        return self.sum(x) / np.asarray(self.count, x.dtype)


def _features(op: Op, x: jax.Array) -> _Features:
    return _Features(x.shape, op.attr("feature_index"))


def _deviation(op: Op, variance: jax.Array) -> jax.Array:
    return lax.sqrt(variance + np.asarray(op.attr("epsilon"), variance.dtype))


@op("stablehlo.batch_norm_inference")
def _inference(op: Op, values: list, frame: Frame) -> list:
    x, scale, offset, mean, variance = values
    spread = _features(op, x).spread
    return [(x - spread(mean)) / spread(_deviation(op, variance)) * spread(scale) + spread(offset)]


@op("stablehlo.batch_norm_training")
def _training(op: Op, values: list, frame: Frame) -> list:
    x, scale, offset = values
    features = _features(op, x)
    spread = features.spread
    mean = features.mean(x)
    centered = x - spread(mean)
    variance = features.mean(centered * centered)
    normal = centered / spread(_deviation(op, variance))
    return [normal * spread(scale) + spread(offset), mean, variance]


@op("stablehlo.batch_norm_grad")
def _gradient(op: Op, values: list, frame: Frame) -> list:
    x, scale, mean, variance, gradient = values
    features = _features(op, x)
    spread = features.spread
    deviation = _deviation(op, variance)
    normal = (x - spread(mean)) / spread(deviation)
    grad_offset = features.sum(gradient)
    grad_scale = features.sum(gradient * normal)
    count = np.asarray(features.count, x.dtype)
    inner = gradient - spread(grad_offset / count) - normal * spread(grad_scale / count)
    return [spread(scale / deviation) * inner, grad_scale, grad_offset]
