"""What optimizers with automatic loss scaling tell of it: settings that can be changed, and statistics."""

from typing import Any

import tensorflow as tf

from openipu.tensorflow.ops.loss_scaling import NAMES, LossScale

# What the histogram means depends on these: it starts anew when they change.
_RESETTING = ("captured_grads_only", "lpf_alpha", "histogram_bin_edge")
STATISTICS = (
    "loss_scaling_factor", "previous_loss_scaling_factor", "histogram", "normalized_histogram", "update_counter",
    "decrease_factor",
)  # fmt: skip


class ScalesLoss:
    """An optimizer with a loss scale."""

    _scale: LossScale

    def reset(self) -> None:
        """Start anew with the initial factor."""
        self._scale.reset()

    @property
    def supports_captured_grads(self) -> bool:
        """Whether it looks at captured gradients."""
        return True

    @property
    def loss_scaling_factor(self) -> tf.Tensor:
        """The factor now."""
        return tf.convert_to_tensor(self._scale.factor)

    @property
    def previous_loss_scaling_factor(self) -> tf.Tensor:
        """The factor before the last call."""
        return tf.convert_to_tensor(self._scale.previous)

    @property
    def histogram(self) -> tf.Tensor:
        """How many elements were small and large since the last change."""
        return tf.convert_to_tensor(self._scale.histogram)

    @property
    def normalized_histogram(self) -> tf.Tensor:
        """The shares of small and large elements."""
        return self.histogram / tf.reduce_sum(self.histogram)

    @property
    def update_counter(self) -> tf.Tensor:
        """Calls since the last change."""
        return tf.convert_to_tensor(self._scale.counter)

    @property
    def decrease_factor(self) -> float:
        """By which the factor is multiplied when there are too many large elements."""
        return 1 / self._scale.settings.increase_factor


def _setting(name: str) -> property:
    def read(self: ScalesLoss) -> Any:
        return getattr(self._scale.settings, name)

    def write(self: ScalesLoss, value: Any) -> None:
        self._scale.change(**{name: value})
        if name in _RESETTING:
            self.reset()

    return property(read, write, doc=f"The argument `{name}`.")


def _read_only(name: str) -> property:
    def refuse(self: ScalesLoss, value: Any) -> None:
        raise ValueError(f"{name} is a read only property.")

    return getattr(ScalesLoss, name).setter(refuse)


for _name in NAMES:
    setattr(ScalesLoss, _name, _setting(_name))
for _name in STATISTICS:
    setattr(ScalesLoss, _name, _read_only(_name))
