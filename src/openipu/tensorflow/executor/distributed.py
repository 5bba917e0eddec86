"""Strategies of programs that several processes run together."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from openipu import instances
from openipu.instances import popdist
from openipu.tensorflow.configuration.popdist import set_place
from openipu.tensorflow.executor import host_collectives
from openipu.tensorflow.executor.strategy import IPUExtended, OnIPUs
from openipu.tensorflow.ops import collectives

_HOST = "/device:CPU:0"


class DistributedExtended(IPUExtended):
    """Variables that begin equal on all instances, and reductions over all of them."""

    def __init__(self, strategy: OnIPUs, ipu_device: str, cpu_device: str, in_sync: int, reductions: bool) -> None:
        super().__init__(strategy, ipu_device, cpu_device)
        self._in_sync = in_sync
        self._reductions = reductions

    @property
    def _num_replicas_in_sync(self) -> int:
        return self._in_sync

    def _create_variable(self, next_creator: Callable, **kwargs: Any) -> Any:
        together = len(instances.current()) > 1
        if together and not tf.executing_eagerly():
            given = kwargs["initial_value"]
            kwargs["initial_value"] = lambda: host_collectives.initial_value(given() if callable(given) else given)
        variable = super()._create_variable(next_creator, **kwargs)
        if together and tf.executing_eagerly():
            value = variable.numpy()
            variable.assign(instances.broadcast(value, instances.current()[0], "the initial value of a variable"))
        return variable

    def read_var(self, var: Any) -> Any:
        """The value of a variable."""
        return tf.identity(var)

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
        if reduce_op not in (tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN):
            raise ValueError(f"Unsupported reduce op: {reduce_op}")
        if collectives.tracing():
            return super()._reduce_to(reduce_op, value, destinations, options) if self._reductions else value
        if tf.executing_eagerly():
            return tf.nest.map_structure(lambda v: host_collectives.allreduce(v, reduce_op), value)
        # Keras' optimizers ask while their update is captured, when gradients are reduced already.
        return value


class PopDistExtendedV1(DistributedExtended):
    """What is behind `PopDistStrategy`: all instances' replicas are in sync; the cluster is poprun's."""

    def __init__(
        self, container_strategy: OnIPUs, cluster_resolver: Any, ipu_device: str, add_ipu_cross_replica_reductions: bool
    ) -> None:
        replicas = popdist.getNumTotalReplicas()
        super().__init__(container_strategy, ipu_device, _HOST, replicas, add_ipu_cross_replica_reductions)


class IPUMultiWorkerExtendedV1(DistributedExtended):
    """What is behind `IPUMultiWorkerStrategyV1`: workers that have joined are in sync."""

    def __init__(
        self, container_strategy: OnIPUs, cluster_resolver: Any, ipu_device: str, variables_on_host: bool
    ) -> None:
        super().__init__(container_strategy, ipu_device, _HOST, len(instances.current()), True)


class PopDistStrategy(OnIPUs):
    """Every instance runs its replicas of one program; gradients are reduced over the replicas of all instances.

    Args:
      ipu_device: the device for variables and programs.
      add_ipu_cross_replica_reductions: whether reductions inside of programs are over replicas.
      enable_dataset_iterators: whether iterators made in the scope belong to the IPU.
      enable_keras_extensions: whether Keras models made in the scope train on the IPU.
    """

    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        add_ipu_cross_replica_reductions: bool = True,
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ) -> None:
        popdist.init()
        extended = PopDistExtendedV1(self, None, ipu_device, add_ipu_cross_replica_reductions)
        super().__init__(extended, ipu_device, _HOST, enable_dataset_iterators, enable_keras_extensions)

    @property
    def instances(self) -> int:
        """Processes that run programs together."""
        return len(instances.current())

    @staticmethod
    def update_ipu_config(config: Any) -> Any:
        """Puts the place of this instance among the others into a configuration, and returns that."""
        return set_place(config)


class IPUMultiWorkerStrategyV1(OnIPUs):
    """The workers of a cluster run one program; gradients are reduced over all of them.

    Args:
      cluster_resolver: says which worker of how many this is, as `TFConfigClusterResolver` reads it from TF_CONFIG.
        The workers meet at the address of the first one.
      ipu_device: the device for variables and programs.
      variables_on_host: accepted for compatibility; variables live where programs use them.
    """

    def __init__(
        self, cluster_resolver: Any, ipu_device: str = "/device:IPU:0", variables_on_host: bool = False
    ) -> None:
        spec = cluster_resolver.cluster_spec().as_dict()
        addresses = [*spec.get("chief", []), *spec.get("worker", [])]
        index = cluster_resolver.task_id or 0
        if cluster_resolver.task_type == "worker":
            index += len(spec.get("chief", []))
        elif cluster_resolver.task_type not in ("chief", None, ""):
            kind = cluster_resolver.task_type
            raise ValueError(f"IPUMultiWorkerStrategyV1 knows chiefs and workers. Received: task type {kind!r}.")
        count = max(len(addresses), 1)
        instances.join(index, count, addresses[0] if addresses else None)
        extended = IPUMultiWorkerExtendedV1(self, cluster_resolver, ipu_device, variables_on_host)
        super().__init__(extended, ipu_device, _HOST, True, True)

    @property
    def instances(self) -> int:
        """Processes that run programs together."""
        return len(instances.current())
