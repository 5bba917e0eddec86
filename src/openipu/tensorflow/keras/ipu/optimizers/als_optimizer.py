"""Keras optimizers that scale the loss by a factor which follows the size of float16 gradients."""

import importlib
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from openipu.tensorflow.keras.ipu.optimizers.gradient_accumulation_optimizer import GradientAccumulationOptimizer
from openipu.tensorflow.keras.ipu.optimizers.ipu_optimizer import IpuOptimizer
from openipu.tensorflow.ops.accumulation import DtypeRule
from openipu.tensorflow.ops.gradient_reduction import GradientAccumulationReductionMethod
from openipu.tensorflow.ops.loss_scaling import NAMES, CapturedGradients, LossScale, Settings
from openipu.tensorflow.ops.loss_scaling_properties import STATISTICS, ScalesLoss

__all__ = ["ALSDefaults", "ALSGradientAccumulationOptimizer", "ALSOptimizer"]

GradsAndVars = Iterable[tuple[Any, Any]]


class ALSDefaults:
    """The arguments that are not given."""

    initial_loss_scaling_factor = Settings().initial_loss_scaling_factor
    update_frequency = Settings().update_frequency
    increase_factor = Settings().increase_factor
    max_loss_scaling_factor = Settings().max_loss_scaling_factor
    accumulate_statistics_over_update_period = Settings().accumulate_statistics_over_update_period
    ratio_threshold = Settings().ratio_threshold
    captured_grads_only = Settings().captured_grads_only
    lpf_alpha = Settings().lpf_alpha
    histogram_bin_edge = Settings().histogram_bin_edge


class ALSOptimizer(ScalesLoss, IpuOptimizer):
    """Multiplies the loss by a factor, divides the gradients by it, and adjusts it to how large float16 gradients are.

    Elements of float16 gradients are counted in two bins, below `histogram_bin_edge` and from there on. Every
    `update_frequency` calls the factor is divided by `increase_factor` if the share of the second bin is beyond
    `ratio_threshold`, else multiplied by it, within 1 and `max_loss_scaling_factor`.

    Args:
      opt: a Keras optimizer.
      initial_loss_scaling_factor, update_frequency, increase_factor, max_loss_scaling_factor, ratio_threshold,
        histogram_bin_edge: as above; factors are powers of two.
      accumulate_statistics_over_update_period: whether all calls are counted, rather than only the last.
      captured_grads_only: whether to count only what CaptureUpstreamGradients and its kin capture.
      lpf_alpha: how much of the histogram before a call stays in that after it.
      name: of this one.
    """

    def __init__(
        self,
        opt: Any,
        initial_loss_scaling_factor: float = ALSDefaults.initial_loss_scaling_factor,
        update_frequency: int = ALSDefaults.update_frequency,
        increase_factor: float = ALSDefaults.increase_factor,
        max_loss_scaling_factor: float = ALSDefaults.max_loss_scaling_factor,
        accumulate_statistics_over_update_period: bool = ALSDefaults.accumulate_statistics_over_update_period,
        ratio_threshold: float = ALSDefaults.ratio_threshold,
        captured_grads_only: bool = ALSDefaults.captured_grads_only,
        lpf_alpha: float = ALSDefaults.lpf_alpha,
        histogram_bin_edge: float = ALSDefaults.histogram_bin_edge,
        name: str = "ALSOptimizer",
    ) -> None:
        settings = Settings(
            initial_loss_scaling_factor, update_frequency, increase_factor, max_loss_scaling_factor,
            accumulate_statistics_over_update_period, ratio_threshold, captured_grads_only, lpf_alpha,
            histogram_bin_edge,
        )  # fmt: skip
        super().__init__(opt, name)
        self._scale = LossScale(settings, self._own_variable)

    def get_scaled_loss(self, loss: Any) -> tf.Tensor:
        """The loss times the current factor."""
        return self._scale.scaled(loss)

    def scale_loss(self, loss: Any) -> tf.Tensor:
        """The loss times the current factor, as Keras 3 asks for it."""
        return self._scale.scaled(loss)

    def get_unscaled_gradients(self, gradients: list) -> list:
        """The gradients as they are: `apply_gradients` divides them."""
        return gradients

    def get_gradients(self, loss: tf.Tensor, params: Sequence[Any]) -> list[tf.Tensor]:
        """The gradients of the scaled loss, in a graph."""
        return tf.gradients(self.get_scaled_loss(loss), self.values(params))

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        captured_grads: CapturedGradients = None,
        global_step: tf.Variable | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Unscale the gradients of the scaled loss and give them to the optimizer inside.

        Args:
          grads_and_vars: (gradient, variable) pairs.
          captured_grads: gradients captured on the way, by tag; they are counted, not applied.
          global_step: a variable to increase by one.
          name, kwargs: accepted for compatibility.
        """
        with self.counting(captured_grads):
            result = super().apply_gradients(grads_and_vars)
        if global_step is not None:
            global_step.assign_add(1)
        return result

    def counting(self, captured: CapturedGradients) -> "_Counting":
        """A context in which the gradients that are applied are counted together with captured ones."""
        return _Counting(self._scale, captured)

    def _apply(self, gradients: list[tf.Tensor], variables: list[Any]) -> None:
        unscaled = self._scale.unscaled(gradients)
        self._scale.advance(gradients)
        super()._apply(unscaled, variables)

    def get_config(self) -> dict[str, Any]:
        """What is needed to make it again."""
        return {**super().get_config(), **{name: getattr(self._scale.settings, name) for name in NAMES}}

    def get_name(self) -> str:
        """Its name."""
        return self.name


class _Counting:
    """While it is entered, captured gradients are counted."""

    def __init__(self, scale: LossScale, captured: CapturedGradients) -> None:
        self._scale, self._captured = scale, captured

    def __enter__(self) -> None:
        self._scale.captured = self._captured

    def __exit__(self, *error: Any) -> None:
        self._scale.captured = None


class ALSGradientAccumulationOptimizer(GradientAccumulationOptimizer):
    """Applies the gradients of `num_mini_batches` calls as one, with an ALSOptimizer.

    Args:
      als_optimizer: an ALSOptimizer, or one of its kin.
      num_mini_batches: calls that make one update.
      offload_weight_update_variables, replicated_optimizer_state_sharding: accepted for compatibility.
      dtype: of the accumulators: None for the variable's own, a dtype, or a function of the variable.
      reduction_method: how the gradients become one.
      name: of this one.
    """

    def __new__(cls, als_optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Only around an ALSOptimizer."""
        if not isinstance(als_optimizer, ALSOptimizer):
            raise ValueError(
                "ALSGradientAccumulationOptimizer must be used with an ALSOptimizer. Received: "
                f"als_optimizer of type {type(als_optimizer).__name__}."
            )
        return IpuOptimizer.__new__(cls)

    def __init__(
        self,
        als_optimizer: ALSOptimizer,
        num_mini_batches: int,
        offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool = False,
        dtype: DtypeRule = None,
        reduction_method: Any = GradientAccumulationReductionMethod.SUM,
        name: str = "ALSGradientAccumulationOptimizer",
    ) -> None:
        self.check(num_mini_batches)
        super().__init__(als_optimizer, num_mini_batches, offload_weight_update_variables,
                         replicated_optimizer_state_sharding, dtype, reduction_method, name)  # fmt: skip

    @property
    def als_optimizer(self) -> ALSOptimizer:
        """The optimizer inside."""
        return self.inner_optimizer

    @property
    def supports_captured_grads(self) -> bool:
        """Whether it passes captured gradients on."""
        return True

    def get_gradients(self, loss: tf.Tensor, params: Sequence[Any]) -> list[tf.Tensor]:
        """The gradients of the scaled loss, in a graph."""
        return self.als_optimizer.get_gradients(loss, params)

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        captured_grads: CapturedGradients = None,
        name: str | None = None,
        experimental_aggregate_gradients: bool = True,
    ) -> Any:
        """Add gradients; captured ones of the last call count. The other arguments are accepted for compatibility."""
        with self.als_optimizer.counting(captured_grads):
            return super().apply_gradients(grads_and_vars)

    def get_config(self) -> dict[str, Any]:
        """What is needed to make it again."""
        config = super().get_config()
        return {"als_optimizer": config.pop("opt"), **config}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Any:
        """Makes it again."""
        inner = cls.inner_from_config(config["als_optimizer"], custom_objects)
        return cls(**{**config, "als_optimizer": inner})


def _of_inner(name: str) -> property:
    return property(lambda self: getattr(self.als_optimizer, name), doc=f"`{name}` of the optimizer inside.")


for _name in (*NAMES, *STATISTICS):
    setattr(ALSGradientAccumulationOptimizer, _name, _of_inner(_name))


def __getattr__(name: str) -> Any:
    # The original's name of the module with the rules that keep gradients scaled, which needs this one.
    if name == "puo":
        return importlib.import_module("openipu.tensorflow.keras.ipu.optimizers.parameter_unscaling_optimizer")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
