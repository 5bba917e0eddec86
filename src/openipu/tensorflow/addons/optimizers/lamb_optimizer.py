"""LAMB."""

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from openipu.tensorflow.addons.keras import registered
from openipu.tensorflow.addons.optimizers.adam_optimizer import moments
from openipu.tensorflow.addons.optimizers.ipu_optimizer_base import IpuOptimizerBase, Slots, dtype_name


@registered
class LAMBIpuOptimizer(IpuOptimizerBase):
    """Adam whose steps are as long, relative to each weight, as the learning rate says.

    Args:
      learning_rate, beta_1, beta_2, epsilon: as of Adam.
      weight_decay_rate: share of the weights added to the update.
      exclude_from_weight_decay, exclude_from_layer_adaptation: regular expressions; variables in whose name one is
        found are left out. The latter are by default those of the former.
      name: of the optimizer.
      debiasing: whether to correct the moments' bias towards zero.
      m_dtype, v_dtype: types of the moments; those of the variables by default.
      weight_norm_clip: the largest norm of a weight that counts.
      optimizer_compute_precisions: the types of the update, and of its product with the ratio of norms.
      **kwargs: as of `IpuOptimizerBase`.
    """

    _number_of_precisions = 2

    def __init__(
        self, learning_rate: Any = 0.001, beta_1: float = 0.9, beta_2: float = 0.999, epsilon: float = 1e-6,
        weight_decay_rate: float = 0.0, exclude_from_weight_decay: Sequence[str] | None = None,
        exclude_from_layer_adaptation: Sequence[str] | None = None, name: str = "LAMB", debiasing: bool = True,
        m_dtype: Any = None, v_dtype: Any = None, weight_norm_clip: float | None = None,
        optimizer_compute_precisions: Sequence[Any] = (tf.float32, tf.float32), **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(name, optimizer_compute_precisions, learning_rate=learning_rate, **kwargs)
        self.beta_1, self.beta_2, self.epsilon, self.debiasing = beta_1, beta_2, epsilon, debiasing
        self.weight_decay_rate, self.weight_norm_clip = weight_decay_rate, weight_norm_clip
        self.exclude_from_weight_decay = list(exclude_from_weight_decay or ())
        adapted = exclude_from_weight_decay if exclude_from_layer_adaptation is None else exclude_from_layer_adaptation
        self.exclude_from_layer_adaptation = list(adapted or ())
        self.m_dtype, self.v_dtype = dtype_name(m_dtype), dtype_name(v_dtype)

    def _slot_names_of(self) -> tuple[str, ...]:
        return ("m", "v")

    def _updated(
        self, variable: Any, weight: tf.Tensor, gradient: tf.Tensor, slots: Slots, rate: tf.Tensor, step: tf.Tensor
    ) -> tuple[tf.Tensor, Slots]:
        first, second, slots = moments(self, gradient, slots, step)
        update = first / (tf.sqrt(second) + tf.cast(self.epsilon, weight.dtype))
        if self.weight_decay_rate and not _named(variable, self.exclude_from_weight_decay):
            update += tf.cast(self.weight_decay_rate, weight.dtype) * weight
        last = self.optimizer_compute_precisions[1]
        ratio = tf.ones([], last)
        if not _named(variable, self.exclude_from_layer_adaptation):
            ratio = tf.cast(self._ratio(tf.norm(weight), tf.norm(update)), last)
        change = tf.cast(rate, last) * ratio * tf.cast(update, last)
        return tf.cast(tf.cast(weight, last) - change, weight.dtype), slots

    def _ratio(self, weight_norm: tf.Tensor, update_norm: tf.Tensor) -> tf.Tensor:
        if self.weight_norm_clip is not None:
            weight_norm = tf.minimum(weight_norm, tf.cast(self.weight_norm_clip, weight_norm.dtype))
        both = (weight_norm > 0) & (update_norm > 0)
        return tf.where(both, weight_norm / tf.where(both, update_norm, 1), 1)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        names = (
            "beta_1", "beta_2", "epsilon", "weight_decay_rate", "exclude_from_weight_decay",
            "exclude_from_layer_adaptation", "debiasing", "m_dtype", "v_dtype", "weight_norm_clip",
        )  # fmt: skip
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def _named(variable: Any, patterns: Sequence[str]) -> bool:
    name = getattr(variable, "path", variable.name).removesuffix(":0")
    return any(re.search(pattern, name) for pattern in patterns)
