"""The base of optimizers that wrap another one."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from openipu.tensorflow.boundary import create_slots

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
        """Gives the gradients to the optimizer inside."""
        pairs = list(grads_and_vars)
        self._make_slots([var for grad, var in pairs if grad is not None])
        return self._apply(pairs, global_step, name)

    def _apply(self, pairs: list[tuple[Any, tf.Variable]], global_step: Any, name: str | None) -> Any:
        return self._opt.apply_gradients(pairs, global_step=global_step, name=name)

    def _create_slots(self, var_list: list[tf.Variable]) -> None:
        create_slots(self._opt, var_list)

    def _make_slots(self, variables: list[tf.Variable]) -> None:
        """Make the slots outside of the function that is being traced, and let it know that it uses them."""
        with tf.init_scope():
            self._create_slots(variables)
        # Optimizers write their slots by handle alone, and a captured function has only variables that were read.
        for variable in self.variables():
            tf.convert_to_tensor(variable)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """As of the optimizer inside."""
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> list[str]:
        """As of the optimizer inside."""
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self) -> list[tf.Variable]:
        """As of the optimizer inside."""
        return self._opt.variables()
