"""The batch-normalisation operations: the core's calls in training, plain arithmetic in inference."""

import jax
import numpy as np
from jax import lax

from openipu.compiler import normalization
from openipu.tensorflow.stablehlo.evaluate import Frame
from openipu.tensorflow.stablehlo.parsed.graph import Op
from openipu.tensorflow.stablehlo.registry import op


def _deviation(op: Op, variance: jax.Array) -> jax.Array:
    return lax.sqrt(variance + np.asarray(op.attr("epsilon"), variance.dtype))


@op("stablehlo.batch_norm_inference")
def _inference(op: Op, values: list, frame: Frame) -> list:
    x, scale, offset, mean, variance = values

    def spread(values: jax.Array) -> jax.Array:
        return lax.broadcast_in_dim(values, x.shape, (op.attr("feature_index"),))

    return [(x - spread(mean)) / spread(_deviation(op, variance)) * spread(scale) + spread(offset)]


@op("stablehlo.batch_norm_training")
def _training(op: Op, values: list, frame: Frame) -> list:
    return list(normalization.forward(*values, epsilon=op.attr("epsilon"), axis=op.attr("feature_index")))


@op("stablehlo.batch_norm_grad")
def _gradient(op: Op, values: list, frame: Frame) -> list:
    x, scale, mean, variance, gradient = values
    operands = (gradient, x, scale, mean, variance)
    return list(normalization.backward(*operands, epsilon=op.attr("epsilon"), axis=op.attr("feature_index")))
