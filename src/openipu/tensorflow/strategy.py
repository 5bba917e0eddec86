"""The distribution strategy that puts variables and functions on virtual IPUs."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib, one_device_strategy
from tensorflow.python.eager import context as eager_context
from tensorflow.python.eager.polymorphic_function import polymorphic_function

from openipu.tensorflow import collectives, runner, variables


class IPUExtended(one_device_strategy.OneDeviceExtended):
    """One replica as far as TensorFlow knows: replicas of the IPU exist only inside compiled programs."""

    def __init__(self, strategy: "IPUStrategyV1", ipu_device: str, cpu_device: str) -> None:
        super().__init__(strategy, cpu_device)
        self._ipu_device = ipu_device

    def _create_variable(self, next_creator: Callable, **kwargs: Any) -> Any:
        variable = super()._create_variable(next_creator, **kwargs)
        variables.remember(variable)
        return variable

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
        if not collectives.tracing():
            return value
        if reduce_op == distribute_lib.reduce_util.ReduceOp.SUM:
            return collectives.cross_replica_sum(value)
        if reduce_op == distribute_lib.reduce_util.ReduceOp.MEAN:
            return collectives.cross_replica_mean(value)
        raise ValueError(f"Unsupported reduce op: {reduce_op}")

    def _distribute_datasets_from_function(self, dataset_fn: Callable, options: Any) -> Any:
        return dataset_fn(distribute_lib.InputContext())

    @property
    def worker_devices(self) -> tuple[str, ...]:
        return (self._ipu_device,)

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        return (self._ipu_device,)

    def non_slot_devices(self, var_list: Any) -> tuple[str, ...]:
        return (self._ipu_device,)


class IPUStrategyV1(distribute_lib.StrategyV1):
    """Variables created in its scope and functions given to `run` live on a virtual IPU device.

    Args:
      ipu_device: the device for variables and programs.
      cpu_device: where initial values are computed and datasets live.
      enable_dataset_iterators: whether iterators made in the scope belong to the IPU.
      enable_keras_extensions: whether Keras models made in the scope train on the IPU.
    """

    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        cpu_device: str = "/device:CPU:0",
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ) -> None:
        self._ipu_device = ipu_device
        self._cpu_device = cpu_device
        self._enable_dataset_iterators = enable_dataset_iterators
        self._enable_keras_extensions = enable_keras_extensions
        super().__init__(IPUExtended(self, ipu_device, cpu_device))
        if enable_keras_extensions:
            from openipu.tensorflow.keras import extend

            extend.install()

    @property
    def device_ordinal(self) -> int:
        """Which of the configured IPU devices programs run on."""
        return int(self._ipu_device.rsplit(":", 1)[-1])

    @property
    def supports_loss_scaling(self) -> bool:
        """Mixed-precision loss-scale optimizers are allowed."""
        return True

    @tf.autograph.experimental.do_not_convert
    def run(self, fn: Callable, args: tuple = (), kwargs: dict | None = None, options: Any = None) -> Any:
        """Run a `tf.function` as one program on the IPU and return the results of the first replica."""
        compiled = isinstance(fn, (polymorphic_function.Function, tf.types.experimental.ConcreteFunction))
        if eager_context.executing_eagerly() and not compiled:
            raise ValueError(
                "IPUStrategyV1.run(fn, ...) does not support eager execution. Either convert `fn` into a tf.function "
                "or consider calling strategy.run inside a tf.function."
            )
        return runner.run(self, fn, tuple(args), dict(kwargs or {}))

    def experimental_run_v2(self, *args: Any, **kwargs: Any) -> Any:
        """Removed; use `run`."""
        raise RuntimeError("`experimental_run_v2` has been deleted. Use `run` instead.")

    def replica_context(self) -> contextlib.AbstractContextManager:
        """The context in which a function of one replica is traced."""
        return one_device_strategy._OneDeviceReplicaContext(self)


def current() -> IPUStrategyV1 | None:
    """The IPU strategy whose scope the caller is in."""
    strategy = tf.distribute.get_strategy()
    return strategy if isinstance(strategy, IPUStrategyV1) else None


def plain_iterator(dataset: tf.data.Dataset) -> Iterator:
    """An ordinary TensorFlow iterator, also inside a strategy scope."""
    return iter(dataset)
