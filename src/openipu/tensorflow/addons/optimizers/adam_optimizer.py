"""Adam as its paper has it."""

from typing import Any

import tensorflow as tf

from openipu.tensorflow.addons.keras import registered
from openipu.tensorflow.addons.optimizers.ipu_optimizer_base import IpuOptimizerBase, Slots, dtype_name


@registered
class AdamIpuOptimizer(IpuOptimizerBase):
    """Adam with the epsilon outside of the bias correction, and its state in types of the user's choice.

    Args:
      learning_rate, beta_1, beta_2, epsilon: as of stock Adam.
      amsgrad: whether to divide by the largest second moment so far, bias corrected.
      name: of the optimizer.
      m_dtype, v_dtype, vhat_dtype: types of the moments; those of the variables by default.
      debiasing: whether to correct the moments' bias towards zero.
      **kwargs: as of `IpuOptimizerBase`.
    """

    def __init__(
        self, learning_rate: Any = 0.001, beta_1: float = 0.9, beta_2: float = 0.999, epsilon: float = 1e-7,
        amsgrad: bool = False, name: str = "Adam", m_dtype: Any = None, v_dtype: Any = None, vhat_dtype: Any = None,
        debiasing: bool = True, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(name, learning_rate=learning_rate, **kwargs)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        self.amsgrad, self.debiasing = amsgrad, debiasing
        self.m_dtype, self.v_dtype, self.vhat_dtype = map(dtype_name, (m_dtype, v_dtype, vhat_dtype))

    def _slot_names_of(self) -> tuple[str, ...]:
        return ("m", "v", "vhat") if self.amsgrad else ("m", "v")

    def _updated(
        self, variable: Any, weight: tf.Tensor, gradient: tf.Tensor, slots: Slots, rate: tf.Tensor, step: tf.Tensor
    ) -> tuple[tf.Tensor, Slots]:
        first, second, slots = moments(self, gradient, slots, step)
        if self.amsgrad:
            slots["vhat"] = second = tf.maximum(slots["vhat"], second)
        return weight - rate * first / (tf.sqrt(second) + tf.cast(self.epsilon, weight.dtype)), slots

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        names = ("beta_1", "beta_2", "epsilon", "amsgrad", "m_dtype", "v_dtype", "vhat_dtype", "debiasing")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def moments(rates: Any, gradient: tf.Tensor, slots: Slots, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, Slots]:
    """The first and second moment, bias corrected where `rates.debiasing`, and the state with both as they are kept."""
    beta_1, beta_2 = (tf.cast(beta, gradient.dtype) for beta in (rates.beta_1, rates.beta_2))
    first = beta_1 * slots["m"] + (1 - beta_1) * gradient
    second = beta_2 * slots["v"] + (1 - beta_2) * tf.square(gradient)
    slots = {**slots, "m": first, "v": second}
    if rates.debiasing:
        first, second = first / (1 - tf.pow(beta_1, step)), second / (1 - tf.pow(beta_2, step))
    return first, second, slots
