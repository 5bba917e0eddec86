"""The loss scaled by a factor that follows the size of float16 gradients."""

from typing import Any

import numpy as np
import tensorflow as tf

from openipu.tensorflow.ipu.optimizers.ipu_optimizer import GradsAndVars, IpuOptimizer
from openipu.tensorflow.ops.loss_scaling import CapturedGradients, LossScale, Settings
from openipu.tensorflow.ops.loss_scaling_properties import ScalesLoss

__all__ = ["AutomaticLossScalingOptimizer"]


class AutomaticLossScalingOptimizer(ScalesLoss, IpuOptimizer):
    """Multiplies the loss by a factor, divides the gradients by it, and adjusts it to how large float16 gradients are.

    `keras.ipu.optimizers.ALSOptimizer` does the same with a Keras optimizer, and says what the arguments mean.

    Args:
      opt: a `tf.compat.v1.train` optimizer.
      initial_loss_scaling_factor, update_frequency, increase_factor, max_loss_scaling_factor,
        accumulate_statistics_over_update_period, ratio_threshold, captured_grads_only, lpf_alpha, histogram_bin_edge:
        when the factor changes.
      name: of this one.
    """

    def __init__(
        self,
        opt: tf.compat.v1.train.Optimizer,
        initial_loss_scaling_factor: float = 1,
        update_frequency: int = 8,
        increase_factor: float = 2,
        max_loss_scaling_factor: float = 32768,
        accumulate_statistics_over_update_period: bool = True,
        ratio_threshold: float = 10e-6,
        captured_grads_only: bool = False,
        lpf_alpha: float = 0.0,
        histogram_bin_edge: float = 2**13,
        name: str = "AutomaticLossScalingOptimizer",
    ) -> None:
        settings = Settings(
            initial_loss_scaling_factor, update_frequency, increase_factor, max_loss_scaling_factor,
            accumulate_statistics_over_update_period, ratio_threshold, captured_grads_only, lpf_alpha,
            histogram_bin_edge,
        )  # fmt: skip
        super().__init__(opt, name)
        self._own: list[tf.Variable] = []
        with tf.init_scope():
            self._scale = LossScale(settings, self._own_variable)

    def _own_variable(self, name: str, value: np.ndarray) -> tf.Variable:
        made = tf.Variable(tf.constant(value), trainable=False, name=f"{self.get_name()}/{name}")
        self._own.append(made)
        return made

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> list[tuple[Any, tf.Variable]]:
        """The gradients of the scaled loss."""
        if callable(loss):
            return super().compute_gradients(lambda: self._scale.scaled(loss()), var_list, **kwargs)
        return super().compute_gradients(self._scale.scaled(loss), var_list, **kwargs)

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        global_step: Any = None,
        name: str | None = None,
        captured_grads: CapturedGradients = None,
    ) -> Any:
        """Unscale the gradients of the scaled loss and give them to the optimizer inside."""
        self._scale.captured = captured_grads
        try:
            return super().apply_gradients(grads_and_vars, global_step, name)
        finally:
            self._scale.captured = None

    def _apply(self, pairs: list[tuple[Any, tf.Variable]], global_step: Any, name: str | None) -> Any:
        given = [(tf.convert_to_tensor(grad), var) for grad, var in pairs if grad is not None]
        gradients = [grad for grad, _ in given]
        unscaled = self._scale.unscaled(gradients)
        # In a graph nothing runs that nobody asked for: the factor changes before the variables, after its use.
        with tf.control_dependencies(unscaled):
            changes = self._scale.advance(gradients)
        with tf.control_dependencies(changes):
            pairs = [(tf.identity(grad), var) for grad, (_, var) in zip(unscaled, given, strict=True)]
            return super()._apply(pairs, global_step, name)

    def variables(self) -> list[tf.Variable]:
        """Those of both optimizers."""
        return [*self._own, *super().variables()]
