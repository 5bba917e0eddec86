"""Normalisation over groups of channels, with variables made by `get_variable`."""

import logging
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from openipu.tensorflow.ops.normalization import check_groups, normalise

__all__ = ["DATA_FORMAT_NCHW", "DATA_FORMAT_NHWC", "group_norm", "instance_norm", "layer_norm"]

DATA_FORMAT_NCHW = "NCHW"
DATA_FORMAT_NHWC = "NHWC"
EPSILON = 1.53e-5

log = logging.getLogger("openipu.tensorflow")


def group_norm(
    inputs: Any,
    groups: int = 2,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = EPSILON,
    param_initializers: Mapping[str, Any] | None = None,
    reuse: bool | None = None,
    variables_collections: Any = None,
    training: bool = True,
    trainable: bool = True,
    scope: Any = None,
    strided_channel_grouping: bool = True,
) -> tf.Tensor:
    """Normalises every sample over groups of channels.

    Args:
      inputs: a tensor with the batch in its first axis.
      groups: number of groups; divides the number of channels.
      channels_axis: 1 or the last axis.
      center: whether to add the variable `beta`.
      scale: whether to multiply by the variable `gamma`.
      epsilon: added to the variance.
      param_initializers: initialisers of `beta` and `gamma`.
      reuse: whether the variables exist already.
      variables_collections: collections the variables are added to.
      training: accepted for compatibility: statistics are those of the sample in any case.
      trainable: whether the variables are trained.
      scope: variable scope; "GroupNorm" by default.
      strided_channel_grouping: whether channel c belongs to group `c % groups`; otherwise groups are consecutive.
    """
    inputs = tf.convert_to_tensor(inputs)
    axis, channels = check_groups(inputs.shape, channels_axis, groups)
    if epsilon < EPSILON:
        log.warning("epsilon=%g may be lost in float16; use %g or more.", epsilon, EPSILON)
    initializers = {"beta": tf.zeros_initializer(), "gamma": tf.ones_initializer(), **(param_initializers or {})}

    def variable(name: str) -> tf.Tensor:
        return tf.compat.v1.get_variable(
            name,
            [channels],
            inputs.dtype,
            initializers[name],
            trainable=trainable,
            collections=_collections(variables_collections, name),
            use_resource=True,
        )

    with tf.compat.v1.variable_scope(scope, "GroupNorm", [inputs], reuse=reuse):
        beta = variable("beta") if center else None
        gamma = variable("gamma") if scale else None
        return normalise(inputs, gamma, beta, groups, axis, epsilon, strided_channel_grouping)


def layer_norm(inputs: Any, channels_axis: int = -1, center: bool = True, scale: bool = True,
               epsilon: float = EPSILON, param_initializers: Mapping[str, Any] | None = None,
               reuse: bool | None = None, variables_collections: Any = None, training: bool = True,
               trainable: bool = True, scope: Any = None) -> tf.Tensor:  # fmt: skip
    """Normalises every sample over all its elements; the variables have one element for each channel."""
    with tf.compat.v1.variable_scope(scope, "LayerNorm", [inputs], reuse=reuse) as inner:
        return group_norm(inputs, 1, channels_axis, center, scale, epsilon, param_initializers, reuse,
                          variables_collections, training, trainable, inner)  # fmt: skip


def instance_norm(inputs: Any, channels_axis: int = -1, center: bool = True, scale: bool = True,
                  epsilon: float = EPSILON, param_initializers: Mapping[str, Any] | None = None,
                  reuse: bool | None = None, variables_collections: Any = None, training: bool = True,
                  trainable: bool = True, scope: Any = None) -> tf.Tensor:  # fmt: skip
    """Normalises every channel of every sample by itself."""
    inputs = tf.convert_to_tensor(inputs)
    _, channels = check_groups(inputs.shape, channels_axis, 1)
    with tf.compat.v1.variable_scope(scope, "InstanceNorm", [inputs], reuse=reuse) as inner:
        return group_norm(inputs, channels, channels_axis, center, scale, epsilon, param_initializers, reuse,
                          variables_collections, training, trainable, inner)  # fmt: skip


def _collections(given: Any, name: str) -> Any:
    return given.get(name) if isinstance(given, Mapping) else given
