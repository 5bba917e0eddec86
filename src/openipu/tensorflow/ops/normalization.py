"""Normalisation of every sample over groups of channels."""

import tensorflow as tf


def check_groups(shape: tf.TensorShape, channels_axis: int, groups: int) -> tuple[int, int]:
    """The axis of the channels, counted from the front, and their number; refuses groups that do not fit."""
    rank = shape.rank
    if rank is None or rank < 2:
        raise ValueError(f"inputs must have a batch axis and a channel axis. Received: shape {shape}.")
    if not -rank <= channels_axis < rank:
        raise ValueError(f"Axis is out of bounds. Received: channels_axis={channels_axis}, shape {shape}.")
    axis = channels_axis % rank
    if axis not in (1, rank - 1):
        raise ValueError(f"channels_axis must be 1 or the last axis. Received: channels_axis={channels_axis}.")
    channels = shape[axis]
    if channels is None:
        raise ValueError(f"inputs must have a known number of channels. Received: shape {shape}.")
    if not 1 <= groups <= channels:
        raise ValueError(f"Invalid groups {groups} for {channels} channels.")
    if channels % groups:
        raise ValueError(f"{channels} channels is not commensurate with {groups} groups.")
    return axis, channels


def normalise(
    inputs: tf.Tensor,
    gamma: tf.Tensor | tf.Variable | None,
    beta: tf.Tensor | tf.Variable | None,
    groups: int,
    axis: int,
    epsilon: float,
    strided: bool = True,
) -> tf.Tensor:
    """Inputs with mean 0 and variance 1 in every group of channels of every sample, scaled and shifted by channel.

    Args:
      inputs: the batch in its first axis.
      gamma, beta: one element for each channel; None leaves scaling or shifting out.
      groups: number of groups.
      axis: of the channels.
      epsilon: added to the variance.
      strided: whether channel c belongs to group `c % groups`; otherwise to `c // (channels // groups)`.
    """
    shape = [-1 if size is None else size for size in inputs.shape]
    channels = shape[axis]
    size = channels // groups
    split = [size, groups] if strided else [groups, size]
    grouped = tf.reshape(inputs, [*shape[:axis], *split, *shape[axis + 1 :]])
    group_axis = axis + 1 if strided else axis
    axes = [i for i in range(1, len(grouped.shape)) if i != group_axis]
    # Statistics in float32: squares of float16 values leave its range easily.
    wide = tf.cast(grouped, tf.float32)
    mean, variance = tf.nn.moments(wide, axes, keepdims=True)
    result = tf.reshape((wide - mean) * tf.math.rsqrt(variance + epsilon), shape)
    along = [1] * len(shape)
    along[axis] = channels
    if gamma is not None:
        result *= tf.cast(tf.reshape(gamma, along), tf.float32)
    if beta is not None:
        result += tf.cast(tf.reshape(beta, along), tf.float32)
    return tf.cast(result, inputs.dtype)
