"""A Keras optimizer that applies the gradients of several calls as one."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from openipu.tensorflow.keras.ipu.optimizers.ipu_optimizer import IpuOptimizer
from openipu.tensorflow.ops.accumulation import Accumulators, DtypeRule
from openipu.tensorflow.ops.gradient_reduction import GradientAccumulationReductionMethod

__all__ = ["GradientAccumulationOptimizer"]

Variables = Sequence[Any]


class GradientAccumulationOptimizer(IpuOptimizer):
    """Applies the gradients of `num_mini_batches` calls as one.

    In `fit`, `set_gradient_accumulation_options` of the model is the better way: it accumulates on the device.

    Args:
      opt: a Keras optimizer; with `num_mini_batches=1` the result is this optimizer itself.
      num_mini_batches: calls that make one update.
      offload_weight_update_variables, replicated_optimizer_state_sharding: accepted for compatibility.
      dtype: of the accumulators: None for the variable's own, a dtype, or a function of the variable.
      reduction_method: how the gradients become one.
      name: of this one.
    """

    def __new__(cls, opt: Any, num_mini_batches: int, *args: Any, **kwargs: Any) -> Any:
        """The optimizer itself where there is nothing to accumulate."""
        cls.check(num_mini_batches)
        return opt if num_mini_batches == 1 else super().__new__(cls)

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        offload_weight_update_variables: bool | None = None,
        replicated_optimizer_state_sharding: bool = False,
        dtype: DtypeRule = None,
        reduction_method: Any = GradientAccumulationReductionMethod.SUM,
        name: str = "GradientAccumulationOptimizer",
    ) -> None:
        super().__init__(opt, name)
        self._accumulators = Accumulators(num_mini_batches, reduction_method, dtype)
        self._accumulator_dtype = dtype

    @staticmethod
    def check(num_mini_batches: Any) -> None:
        """Refuse what is not a number of calls."""
        if not isinstance(num_mini_batches, int) or num_mini_batches < 1:
            raise ValueError(f"num_mini_batches must be >= 1. Received: num_mini_batches={num_mini_batches!r}.")

    @staticmethod
    def bool_to_three_state(value: bool | None, default: bool | None) -> bool | None:
        """The value, or the default where it is None."""
        return default if value is None else value

    def build(self, variables: Variables) -> None:
        """Makes the variables of both optimizers, and the accumulators."""
        super().build(variables)
        self._accumulators.build(self.values(variables))

    def _apply(self, gradients: list[tf.Tensor], variables: list[Any]) -> None:
        update = super()._apply
        self._accumulators.apply(gradients, self.values(variables), lambda totals: update(totals, variables))

    def get_config(self) -> dict[str, Any]:
        """What is needed to make it again."""
        return {
            **super().get_config(),
            "num_mini_batches": self._accumulators.count,
            "dtype": self._accumulator_dtype,
            "reduction_method": self._accumulators.method.name,
        }
