"""The distribution strategy that puts variables and functions on virtual IPUs."""

import contextlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from openipu.tensorflow import boundary
from openipu.tensorflow.capture import variables
from openipu.tensorflow.executor import run
from openipu.tensorflow.ops import collectives

# What is to be done before models are made in a scope; the Keras room, which is above this one, says what.
_keras_preparations: list[Callable[[], None]] = []


def prepare_keras(prepare: Callable[[], None]) -> None:
    """Have a function called for every strategy with Keras extensions."""
    _keras_preparations.append(prepare)


class IPUExtended(boundary.OneDeviceExtended):
    """One replica as far as TensorFlow knows: replicas of the IPU exist only inside compiled programs."""

    def __init__(self, container_strategy: "OnIPUs", ipu_device: str, cpu_device: str) -> None:
        super().__init__(container_strategy, cpu_device)
        self._ipu_device = ipu_device

    def _create_variable(self, next_creator: Callable, **kwargs: Any) -> Any:
        variable = super()._create_variable(next_creator, **kwargs)
        variables.remember(variable)
        return variable

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
        if not collectives.tracing():
            return value
        if reduce_op == tf.distribute.ReduceOp.SUM:
            return collectives.cross_replica_sum(value)
        if reduce_op == tf.distribute.ReduceOp.MEAN:
            return collectives.cross_replica_mean(value)
        raise ValueError(f"Unsupported reduce op: {reduce_op}")

    def _distribute_datasets_from_function(self, dataset_fn: Callable, options: Any) -> Any:
        return dataset_fn(tf.distribute.InputContext())

    @property
    def worker_devices(self) -> tuple[str, ...]:
        return (self._ipu_device,)

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        return (self._ipu_device,)

    def non_slot_devices(self, var_list: Any) -> tuple[str, ...]:
        return (self._ipu_device,)


class _WholeScope:
    """The scope of a strategy, entered and left as a whole, though a signal may come in between."""

    def __init__(self, scope: contextlib.AbstractContextManager) -> None:
        self._scope = scope
        self._restore: Callable[[], None] | None = None

    def __enter__(self) -> Any:
        restore = boundary.scopes_of_thread()
        try:
            entered = self._scope.__enter__()
            self._restore = restore
            return entered
        except BaseException:
            restore()
            raise

    def __exit__(self, *error: Any) -> Any:
        try:
            return self._scope.__exit__(*error)
        except BaseException:
            if self._restore is not None:
                self._restore()
            raise


class OnIPUs(tf.compat.v1.distribute.Strategy):
    """A strategy whose variables and functions live on a virtual IPU device.

    Args:
      extended: what TensorFlow asks.
      ipu_device: the device for variables and programs.
      cpu_device: where initial values are computed and datasets live.
      enable_dataset_iterators: whether iterators made in the scope belong to the IPU.
      enable_keras_extensions: whether Keras models made in the scope train on the IPU.
    """

    def __init__(
        self,
        extended: IPUExtended,
        ipu_device: str,
        cpu_device: str,
        enable_dataset_iterators: bool,
        enable_keras_extensions: bool,
    ) -> None:
        self._ipu_device = ipu_device
        self._cpu_device = cpu_device
        self._enable_dataset_iterators = enable_dataset_iterators
        self._enable_keras_extensions = enable_keras_extensions
        super().__init__(extended)
        if enable_keras_extensions:
            for prepare in _keras_preparations:
                prepare()
        if enable_dataset_iterators:
            from openipu.tensorflow.feeds import iterators

            iterators.install()

    def scope(self) -> Any:
        """Variables, models and functions made inside are this strategy's."""
        return _WholeScope(super().scope())

    @property
    def instances(self) -> int:
        """Processes that run programs together, as far as the strategy says so."""
        return 1

    @property
    def device_ordinal(self) -> int:
        """Which of the configured IPU devices programs run on."""
        return int(self._ipu_device.rsplit(":", 1)[-1])

    @property
    def owns_iterators(self) -> bool:
        """Whether iterators made in the scope belong to the IPU."""
        return self._enable_dataset_iterators

    @property
    def supports_loss_scaling(self) -> bool:
        """Mixed-precision loss-scale optimizers are allowed."""
        return True

    @tf.autograph.experimental.do_not_convert
    def run(self, fn: Callable, args: tuple = (), kwargs: dict | None = None, options: Any = None) -> Any:
        """Run a function as one program on the IPU and return the results of the first replica."""
        return run.run(self, fn, tuple(args), dict(kwargs or {}))

    def experimental_run_v2(self, *args: Any, **kwargs: Any) -> Any:
        """Removed; use `run`."""
        raise RuntimeError("`experimental_run_v2` has been deleted. Use `run` instead.")

    def replica_context(self) -> contextlib.AbstractContextManager:
        """The context in which a function of one replica is traced."""
        return boundary.replica_context(self)


class IPUStrategyV1(OnIPUs):
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
        extended = IPUExtended(self, ipu_device, cpu_device)
        super().__init__(extended, ipu_device, cpu_device, enable_dataset_iterators, enable_keras_extensions)

    @tf.autograph.experimental.do_not_convert
    def run(self, fn: Callable, args: tuple = (), kwargs: dict | None = None, options: Any = None) -> Any:
        """Run a `tf.function` as one program on the IPU and return the results of the first replica."""
        compiled = isinstance(fn, (tf.types.experimental.PolymorphicFunction, tf.types.experimental.ConcreteFunction))
        if tf.executing_eagerly() and not compiled:
            raise ValueError(
                "IPUStrategyV1.run(fn, ...) does not support eager execution. Either convert `fn` into a tf.function "
                "or consider calling strategy.run inside a tf.function."
            )
        return super().run(fn, args, kwargs, options)


def current() -> OnIPUs | None:
    """The IPU strategy whose scope the caller is in."""
    strategy = tf.distribute.get_strategy()
    return strategy if isinstance(strategy, OnIPUs) else None
