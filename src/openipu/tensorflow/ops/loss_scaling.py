"""Automatic loss scaling: the factor of the loss follows how many float16 gradients come close to their largest value.

What may change between two runs is kept in variables, so that a program that was compiled before sees it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import tensorflow as tf

from openipu.tensorflow.ops import collectives

CapturedGradients = Mapping[str, Any] | None
# (name, value) -> a variable that the optimizer counts among its own.
MakeVariable = Callable[[str, np.ndarray], tf.Variable]


def _positive(instance: Any, attribute: Any, value: Any) -> None:
    if value < 1 or int(value) != value:
        raise ValueError(f"{attribute.name} must be nonzero and positive. Received: {attribute.name}={value!r}.")


def _power_of_two(instance: Any, attribute: Any, value: Any) -> None:
    if value <= 0 or float(np.log2(value)) % 1:
        raise ValueError(f"{attribute.name} must be a power of two. Received: {attribute.name}={value!r}.")


def _share(instance: Any, attribute: Any, value: Any) -> None:
    if not 0 < value < 1:
        raise ValueError(
            f"{attribute.name} must be greater than zero and less than one. Received: {attribute.name}={value!r}."
        )


def _weight(instance: Any, attribute: Any, value: Any) -> None:
    if not 0 <= value < 1:
        raise ValueError(f"{attribute.name} must be at least zero and less than one. Received: {value!r}.")


@attrs.frozen
class Settings:
    """When the factor changes, and how.

    Attributes:
      initial_loss_scaling_factor: the factor at the start.
      update_frequency: calls between two changes of the factor.
      increase_factor: by which the factor is multiplied, or divided.
      max_loss_scaling_factor: the factor stays below it.
      accumulate_statistics_over_update_period: whether gradients of all calls are counted, rather than of the last.
      ratio_threshold: the share of large elements above which the factor becomes smaller.
      captured_grads_only: whether only captured gradients are counted.
      lpf_alpha: how much of the histogram before a call stays in that after it.
      histogram_bin_edge: from which absolute value on an element is large.
    """

    initial_loss_scaling_factor: float = attrs.field(default=1, validator=_power_of_two)
    update_frequency: int = attrs.field(default=8, validator=_positive)
    increase_factor: float = attrs.field(default=2, validator=_power_of_two)
    max_loss_scaling_factor: float = attrs.field(default=32768, validator=_power_of_two)
    accumulate_statistics_over_update_period: bool = True
    ratio_threshold: float = attrs.field(default=10e-6, validator=_share)
    captured_grads_only: bool = False
    lpf_alpha: float = attrs.field(default=0.0, validator=_weight)
    histogram_bin_edge: float = 2**13

    def __attrs_post_init__(self) -> None:
        limit = self.max_loss_scaling_factor
        if self.initial_loss_scaling_factor >= limit:
            raise ValueError(
                "initial_loss_scaling_factor must be less than max_loss_scaling_factor. Received: "
                f"initial_loss_scaling_factor={self.initial_loss_scaling_factor}, max_loss_scaling_factor={limit}."
            )
        if self.initial_loss_scaling_factor * self.increase_factor >= limit:
            raise ValueError(
                "initial_loss_scaling_factor x increase_factor must be less than max_loss_scaling_factor. Received: "
                f"initial_loss_scaling_factor={self.initial_loss_scaling_factor}, "
                f"increase_factor={self.increase_factor}, max_loss_scaling_factor={limit}."
            )


NAMES = tuple(field.name for field in attrs.fields(Settings))


class LossScale:
    """The factor of the loss, and what it is decided by.

    Args:
      settings: when it changes.
      make: makes its variables.

    Attributes:
      captured: gradients to count besides those that are applied.
    """

    def __init__(self, settings: Settings, make: MakeVariable) -> None:
        self._settings = settings
        self.captured: CapturedGradients = None
        initial = np.float32(settings.initial_loss_scaling_factor)
        self.factor = make("loss_scaling_factor", np.asarray(initial))
        self.previous = make("previous_loss_scaling_factor", np.asarray(initial))
        self.counter = make("update_counter", np.zeros((), np.int32))
        self.histogram = make("gradient_histogram", np.zeros(2, np.float32))
        self._numbers = make("loss_scaling_settings", _numbers(settings))

    @property
    def settings(self) -> Settings:
        """When the factor changes."""
        return self._settings

    def change(self, **settings: Any) -> None:
        """Change settings, also those of programs that were compiled before."""
        self._settings = attrs.evolve(self._settings, **settings)
        self._numbers.assign(_numbers(self._settings))

    def reset(self) -> None:
        """Start anew."""
        initial = float(self._settings.initial_loss_scaling_factor)
        self.factor.assign(initial)
        self.previous.assign(initial)
        self.counter.assign(0)
        self.histogram.assign(tf.zeros(2))

    def scaled(self, loss: Any) -> tf.Tensor:
        """The loss times the factor."""
        loss = tf.convert_to_tensor(loss)
        return loss * tf.cast(self.factor, loss.dtype)

    def unscaled(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Gradients of the scaled loss as those of the loss."""
        return [gradient / tf.cast(self.factor, gradient.dtype) for gradient in gradients]

    def advance(self, gradients: Sequence[tf.Tensor]) -> list[Any]:
        """Count the elements of gradients, and change the factor when that is due; after gradients were unscaled.

        Returns:
          The assignments, which a graph of TensorFlow 1 must be told to run.
        """
        now = dict(zip(NAMES, tf.unstack(tf.convert_to_tensor(self._numbers)), strict=True))
        frequency = tf.cast(now["update_frequency"], tf.int32)
        counter = tf.convert_to_tensor(self.counter)
        due = tf.equal(frequency, 1) | ((counter > 0) & tf.equal(tf.math.floormod(counter, frequency), 0))

        own = _counts(gradients, now["histogram_bin_edge"]) * (1 - now["captured_grads_only"])
        others = _counts(_flat(self.captured), now["histogram_bin_edge"])
        counting = (now["accumulate_statistics_over_update_period"] > 0) | due
        before = tf.convert_to_tensor(self.histogram)
        alpha = now["lpf_alpha"]
        after = alpha * before + (1 - alpha) * (before + own + others)
        histogram = tf.where(counting, after, before)

        factor = tf.convert_to_tensor(self.factor)
        many = tf.math.divide_no_nan(histogram[1], tf.reduce_sum(histogram)) > now["ratio_threshold"]
        step = now["increase_factor"]
        wanted = tf.where(many, factor / step, factor * step)
        allowed = tf.math.is_finite(wanted) & (wanted < now["max_loss_scaling_factor"]) & (wanted >= 1)

        return [
            self.previous.assign(factor),
            self.factor.assign(tf.where(due & allowed, wanted, factor)),
            self.histogram.assign(tf.where(due, tf.zeros_like(histogram), histogram)),
            self.counter.assign(tf.where(due, 0, counter + 1)),
        ]


def scales_loss(optimizer: Any) -> bool:
    """Whether an optimizer, or one inside of it, scales the loss automatically."""
    while optimizer is not None:
        if isinstance(getattr(optimizer, "_scale", None), LossScale):
            return True
        optimizer = getattr(optimizer, "inner_optimizer", None)
    return False


def _numbers(settings: Settings) -> np.ndarray:
    return np.array([float(getattr(settings, name)) for name in NAMES], np.float32)


def _flat(captured: CapturedGradients) -> list[Any]:
    return [gradient for gradient in tf.nest.flatten(dict(captured or {})) if gradient is not None]


def _counts(gradients: Sequence[Any], edge: tf.Tensor) -> tf.Tensor:
    """How many elements of float16 gradients are small and large; the mean over replicas, so that they stay equal."""
    total = tf.zeros(2)
    for gradient in gradients:
        if gradient.dtype != tf.float16:
            continue
        size = tf.cast(tf.size(gradient), tf.float32)
        # What is not even a number has overflowed on the way.
        small = tf.reduce_sum(tf.cast(tf.abs(tf.cast(gradient, tf.float32)) < edge, tf.float32))
        total += tf.stack([small, size - small])
    return collectives.cross_replica_mean(total) if collectives.tracing() else total
