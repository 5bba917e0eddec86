"""Normalisation over groups of channels, single channels, or given axes; statistics are those of the sample."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from openipu.tensorflow.addons.keras import keras, registered
from openipu.tensorflow.addons.layers.ipu_layer import IPULayer
from openipu.tensorflow.ops.normalization import check_groups, normalise


class _Normalization(IPULayer):
    """What all three have: whether and how to scale and shift."""

    def __init__(self, center: bool, scale: bool, epsilon: float, beta_initializer: Any, gamma_initializer: Any,
                 **kwargs: Any) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.center, self.scale, self.epsilon = center, scale, epsilon
        self.beta_initializer = keras.initializers.get(beta_initializer)
        self.gamma_initializer = keras.initializers.get(gamma_initializer)
        self.gamma = self.beta = None

    def _make_weights(self, shape: tuple[int, ...]) -> None:
        if self.scale:
            self.gamma = self.add_weight(name="gamma", shape=shape, initializer=self.gamma_initializer)
        if self.center:
            self.beta = self.add_weight(name="beta", shape=shape, initializer=self.beta_initializer)
        self.built = True

    def compute_output_shape(self, input_shape: Any) -> Any:
        """That of the inputs."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """The arguments that all three have."""
        return {
            **super().get_config(),
            "center": self.center,
            "scale": self.scale,
            "epsilon": self.epsilon,
            "beta_initializer": keras.initializers.serialize(self.beta_initializer),
            "gamma_initializer": keras.initializers.serialize(self.gamma_initializer),
        }


@registered
class GroupNormalization(_Normalization):
    """Every sample with mean 0 and variance 1 in every group of channels, scaled and shifted by channel.

    Args:
      groups: number of groups; divides the number of channels.
      channels_axis: 1 or the last axis.
      center, scale: whether to shift by `beta`, to scale by `gamma`.
      epsilon: added to the variance.
      beta_initializer, gamma_initializer: as in the original, None means Keras' default for weights (glorot_uniform).
      strided_channel_grouping: whether channel c belongs to group `c % groups`; otherwise groups are consecutive.
      trainable: whether the weights are trained.
    """

    def __init__(
        self,
        groups: int = 2,
        channels_axis: int = -1,
        center: bool = True,
        scale: bool = True,
        epsilon: float = 0.001,
        beta_initializer: Any = None,
        gamma_initializer: Any = None,
        strided_channel_grouping: bool = True,
        trainable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(center, scale, epsilon, beta_initializer, gamma_initializer, trainable=trainable, **kwargs)
        self.groups, self.channels_axis = groups, channels_axis
        self.strided_channel_grouping = strided_channel_grouping

    def build(self, input_shape: Any) -> None:
        """Makes the weights."""
        shape = tf.TensorShape(input_shape)
        _, channels = check_groups(shape, self.channels_axis, self._groups(shape))
        self._make_weights((channels,))

    def _groups(self, shape: tf.TensorShape) -> int:
        return self.groups

    def call(self, inputs: Any, training: Any = None) -> tf.Tensor:
        """The inputs, normalised."""
        groups = self._groups(inputs.shape)
        axis, _ = check_groups(inputs.shape, self.channels_axis, groups)
        gamma, beta = (None if w is None else tf.convert_to_tensor(w) for w in (self.gamma, self.beta))
        return normalise(inputs, gamma, beta, groups, axis, self.epsilon, self.strided_channel_grouping)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {
            **super().get_config(),
            "groups": self.groups,
            "channels_axis": self.channels_axis,
            "strided_channel_grouping": self.strided_channel_grouping,
        }


@registered
class InstanceNormalization(GroupNormalization):
    """Every channel of every sample with mean 0 and variance 1; arguments as of `GroupNormalization`."""

    def __init__(self, channels_axis: int = -1, center: bool = True, scale: bool = True, epsilon: float = 0.001,
                 beta_initializer: Any = None, gamma_initializer: Any = None, trainable: bool = True,
                 **kwargs: Any) -> None:  # fmt: skip
        super().__init__(1, channels_axis, center, scale, epsilon, beta_initializer, gamma_initializer, True,
                         trainable, **kwargs)  # fmt: skip

    def _groups(self, shape: tf.TensorShape) -> int:
        return int(shape[check_groups(shape, self.channels_axis, 1)[0]] or 0)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        config = super().get_config()
        return {name: value for name, value in config.items() if name not in ("groups", "strided_channel_grouping")}


@registered
class LayerNormalization(_Normalization):
    """Every sample with mean 0 and variance 1 over the given axes, as stock Keras' layer of this name.

    Args:
      axis: one axis, or several.
      epsilon, center, scale, beta_initializer, gamma_initializer, trainable: as of `GroupNormalization`.
      beta_regularizer, gamma_regularizer, beta_constraint, gamma_constraint: refused.
    """

    def __init__(
        self,
        axis: int | Sequence[int] = -1,
        epsilon: float = 0.001,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        beta_regularizer: Any = None,
        gamma_regularizer: Any = None,
        beta_constraint: Any = None,
        gamma_constraint: Any = None,
        trainable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(center, scale, epsilon, beta_initializer, gamma_initializer, trainable=trainable, **kwargs)
        self._refuse(
            beta_regularizer=beta_regularizer,
            gamma_regularizer=gamma_regularizer,
            beta_constraint=beta_constraint,
            gamma_constraint=gamma_constraint,
        )
        if not isinstance(axis, (int, list, tuple)):
            raise TypeError(f"axis must be an int or a list of ints. Received: axis={axis!r}.")
        self.axis = axis if isinstance(axis, int) else list(axis)

    def _axes(self, rank: int) -> list[int]:
        given = [self.axis] if isinstance(self.axis, int) else list(self.axis)
        if any(not -rank <= axis < rank for axis in given) or len({axis % rank for axis in given}) < len(given):
            raise ValueError(f"axis must name different axes of {rank}. Received: axis={self.axis}.")
        return sorted(axis % rank for axis in given)

    def build(self, input_shape: Any) -> None:
        """Makes the weights."""
        shape = tuple(input_shape)
        sizes = tuple(shape[axis] for axis in self._axes(len(shape)))
        if None in sizes:
            raise ValueError(f"The axes {self.axis} must have known sizes. Received: shape {shape}.")
        self._make_weights(sizes)

    def call(self, inputs: Any, training: Any = None) -> tf.Tensor:
        """The inputs, normalised."""
        inputs = tf.convert_to_tensor(inputs)
        axes = self._axes(inputs.shape.rank)
        along = [inputs.shape[i] if i in axes else 1 for i in range(inputs.shape.rank)]
        # Statistics in float32: squares of float16 values leave its range easily.
        wide = tf.cast(inputs, tf.float32)
        mean, variance = tf.nn.moments(wide, axes, keepdims=True)
        result = (wide - mean) * tf.math.rsqrt(variance + self.epsilon)
        if self.gamma is not None:
            result *= tf.reshape(tf.cast(tf.convert_to_tensor(self.gamma), tf.float32), along)
        if self.beta is not None:
            result += tf.reshape(tf.cast(tf.convert_to_tensor(self.beta), tf.float32), along)
        return tf.cast(result, inputs.dtype)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {**super().get_config(), "axis": self.axis}


GroupNorm, InstanceNorm, LayerNorm = GroupNormalization, InstanceNormalization, LayerNormalization
