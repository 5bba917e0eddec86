"""The base of optimizers that wrap another one."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

GradsAndVars = Iterable[tuple[Any, tf.Variable]]


class IpuOptimizer(tf.compat.v1.train.Optimizer):
    """Passes everything on to the optimizer inside.

    Args:
      opt: a `tf.compat.v1.train` optimizer.
      name: of this one.
    """

    def __init__(self, opt: tf.compat.v1.train.Optimizer, name: str | None = None) -> None:
        if not isinstance(opt, tf.compat.v1.train.Optimizer):
            raise ValueError(
                "Should use optimizer in keras.ipu.optimizers (in the Keras package) to wrap V2 optimizers. "
                f"Received: opt of type {type(opt).__name__}."
            )
        super().__init__(use_locking=False, name=name or type(self).__name__)
        self._opt = opt

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> list[tuple[Any, tf.Variable]]:
        """As of the optimizer inside."""
        return self._opt.compute_gradients(loss, var_list=var_list, **kwargs)

    def apply_gradients(self, grads_and_vars: GradsAndVars, global_step: Any = None, name: str | None = None) -> Any:
        """As of the optimizer inside."""
        return self._opt.apply_gradients(grads_and_vars, global_step=global_step, name=name)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """As of the optimizer inside."""
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> list[str]:
        """As of the optimizer inside."""
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self) -> list[tf.Variable]:
        """As of the optimizer inside."""
        return self._opt.variables()
