"""Stochastic gradient descent with automatic loss scaling."""

from typing import Any

import tensorflow as tf

from openipu.tensorflow.keras.ipu.optimizers.als_optimizer import ALSDefaults
from openipu.tensorflow.keras.ipu.optimizers.parameter_unscaling_optimizer import ParameterUnscalingALSOptimizer
from openipu.tensorflow.keras.ipu.wrapping import keras

__all__ = ["ALSOptimizerSGD"]


class ALSOptimizerSGD(ParameterUnscalingALSOptimizer):
    """SGD whose gradients stay scaled: the learning rate is divided by the factor.

    Args:
      learning_rate, momentum: as of SGD.
      initial_loss_scaling_factor and those that follow: as of ALSOptimizer.
      name: of this one.
    """

    rule = ("learning_rate", "momentum")

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: float = 0.0,
        initial_loss_scaling_factor: float = ALSDefaults.initial_loss_scaling_factor,
        update_frequency: int = ALSDefaults.update_frequency,
        increase_factor: float = ALSDefaults.increase_factor,
        max_loss_scaling_factor: float = ALSDefaults.max_loss_scaling_factor,
        accumulate_statistics_over_update_period: bool = ALSDefaults.accumulate_statistics_over_update_period,
        ratio_threshold: float = ALSDefaults.ratio_threshold,
        captured_grads_only: bool = ALSDefaults.captured_grads_only,
        lpf_alpha: float = ALSDefaults.lpf_alpha,
        histogram_bin_edge: float = ALSDefaults.histogram_bin_edge,
        name: str = "ALSOptimizerSGD",
    ) -> None:
        opt = keras.optimizers.SGD(learning_rate, momentum)
        super().__init__(
            learning_rate, opt,
            initial_loss_scaling_factor, update_frequency, increase_factor, max_loss_scaling_factor,
            accumulate_statistics_over_update_period, ratio_threshold, captured_grads_only, lpf_alpha,
            histogram_bin_edge, name,
        )  # fmt: skip
        self.momentum = momentum

    def slot_names(self) -> tuple[str, ...]:
        """Momentum, if there is any."""
        return ("momentum",) if self.momentum else ()

    def step(
        self, gradient: tf.Tensor, slots: dict[str, tf.Variable], rate: tf.Tensor, sigma: tf.Tensor, ratio: tf.Tensor
    ) -> tf.Tensor:
        """The gradient, or its momentum."""
        if slots:
            gradient = self.momentum * ratio * slots["momentum"] + gradient
            slots["momentum"].assign(gradient)
        return rate / sigma * gradient
