"""RMSProp with automatic loss scaling."""

from typing import Any

import tensorflow as tf

from openipu.tensorflow.keras.ipu.optimizers.als_optimizer import ALSDefaults
from openipu.tensorflow.keras.ipu.optimizers.parameter_unscaling_optimizer import ParameterUnscalingALSOptimizer
from openipu.tensorflow.keras.ipu.wrapping import keras

__all__ = ["ALSOptimizerRMSProp"]


class ALSOptimizerRMSProp(ParameterUnscalingALSOptimizer):
    """RMSProp whose gradients stay scaled: its mean square is that of scaled gradients, and epsilon is scaled with it.

    Args:
      learning_rate, rho, momentum, epsilon, centered: as of RMSprop.
      initial_loss_scaling_factor and those that follow: as of ALSOptimizer.
      name: of this one.
    """

    rule = ("learning_rate", "rho", "momentum", "epsilon", "centered")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-07,
        centered: bool = False,
        initial_loss_scaling_factor: float = ALSDefaults.initial_loss_scaling_factor,
        update_frequency: int = ALSDefaults.update_frequency,
        increase_factor: float = ALSDefaults.increase_factor,
        max_loss_scaling_factor: float = ALSDefaults.max_loss_scaling_factor,
        accumulate_statistics_over_update_period: bool = ALSDefaults.accumulate_statistics_over_update_period,
        ratio_threshold: float = ALSDefaults.ratio_threshold,
        captured_grads_only: bool = ALSDefaults.captured_grads_only,
        lpf_alpha: float = ALSDefaults.lpf_alpha,
        histogram_bin_edge: float = ALSDefaults.histogram_bin_edge,
        name: str = "ALSOptimizerRMSProp",
    ) -> None:
        opt = keras.optimizers.RMSprop(learning_rate, rho, momentum, epsilon, centered)
        super().__init__(
            learning_rate, opt,
            initial_loss_scaling_factor, update_frequency, increase_factor, max_loss_scaling_factor,
            accumulate_statistics_over_update_period, ratio_threshold, captured_grads_only, lpf_alpha,
            histogram_bin_edge, name,
        )  # fmt: skip
        self.rho, self.momentum, self.epsilon, self.centered = rho, momentum, epsilon, centered

    def slot_names(self) -> tuple[str, ...]:
        """The mean square; the mean and momentum, if they are asked for."""
        return ("rms", *(("mg",) if self.centered else ()), *(("momentum",) if self.momentum else ()))

    def step(
        self, gradient: tf.Tensor, slots: dict[str, tf.Variable], rate: tf.Tensor, sigma: tf.Tensor, ratio: tf.Tensor
    ) -> tf.Tensor:
        """The gradient over its root mean square, or the momentum of that."""
        square = self.rho * ratio**2 * slots["rms"] + (1 - self.rho) * gradient**2
        slots["rms"].assign(square)
        if self.centered:
            mean = self.rho * ratio * slots["mg"] + (1 - self.rho) * gradient
            slots["mg"].assign(mean)
            square -= mean**2
        direction = rate * gradient / tf.sqrt(square + self.epsilon * sigma**2)
        if self.momentum:
            direction += self.momentum * slots["momentum"]
            slots["momentum"].assign(direction)
        return direction
