"""Adam with automatic loss scaling."""

from typing import Any

import tensorflow as tf

from openipu.tensorflow.keras.ipu.optimizers.als_optimizer import ALSDefaults
from openipu.tensorflow.keras.ipu.optimizers.parameter_unscaling_optimizer import ParameterUnscalingALSOptimizer
from openipu.tensorflow.keras.ipu.wrapping import keras

__all__ = ["ALSOptimizerAdam"]


class ALSOptimizerAdam(ParameterUnscalingALSOptimizer):
    """Adam whose gradients stay scaled: its moments are those of scaled gradients, and epsilon is scaled with them.

    Args:
      learning_rate, beta_1, beta_2, epsilon: as of Adam.
      initial_loss_scaling_factor and those that follow: as of ALSOptimizer.
      name: of this one.
    """

    rule = ("learning_rate", "beta_1", "beta_2", "epsilon")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-07,
        initial_loss_scaling_factor: float = ALSDefaults.initial_loss_scaling_factor,
        update_frequency: int = ALSDefaults.update_frequency,
        increase_factor: float = ALSDefaults.increase_factor,
        max_loss_scaling_factor: float = ALSDefaults.max_loss_scaling_factor,
        accumulate_statistics_over_update_period: bool = ALSDefaults.accumulate_statistics_over_update_period,
        ratio_threshold: float = ALSDefaults.ratio_threshold,
        captured_grads_only: bool = ALSDefaults.captured_grads_only,
        lpf_alpha: float = ALSDefaults.lpf_alpha,
        histogram_bin_edge: float = ALSDefaults.histogram_bin_edge,
        name: str = "ALSOptimizerAdam",
    ) -> None:
        opt = keras.optimizers.Adam(learning_rate, beta_1, beta_2, epsilon)
        super().__init__(
            learning_rate, opt,
            initial_loss_scaling_factor, update_frequency, increase_factor, max_loss_scaling_factor,
            accumulate_statistics_over_update_period, ratio_threshold, captured_grads_only, lpf_alpha,
            histogram_bin_edge, name,
        )  # fmt: skip
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

    def slot_names(self) -> tuple[str, ...]:
        """Both moments."""
        return ("m", "v")

    def step(
        self, gradient: tf.Tensor, slots: dict[str, tf.Variable], rate: tf.Tensor, sigma: tf.Tensor, ratio: tf.Tensor
    ) -> tf.Tensor:
        """The first moment over the root of the second, without their bias."""
        m = self.beta_1 * ratio * slots["m"] + (1 - self.beta_1) * gradient
        v = self.beta_2 * ratio**2 * slots["v"] + (1 - self.beta_2) * gradient**2
        slots["m"].assign(m)
        slots["v"].assign(v)
        count = self.updates
        unbiased = tf.sqrt(1 - tf.pow(self.beta_2, count)) / (1 - tf.pow(self.beta_1, count))
        return rate * unbiased * m / (tf.sqrt(v) + self.epsilon * sigma)
