"""Helpers that IPU programs call: seeds, synthetic data, and questions about the configured devices."""

import enum
from typing import TYPE_CHECKING

from openipu import environment
from openipu.environment import running_on_ipu_model
from openipu.tensorflow.capture import placement
from openipu.tensorflow.configuration import seeds, system
from openipu.tensorflow.ipu import dataset_extractor, ipu_infeed_queue, refused
from openipu.tensorflow.ipu.config import (
    DeviceConnectionType,
    ExecutionProfileType,
    IPUConfig,
    KeyId,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    VerificationOptions,
    configure_ipu_system,
    get_ipu_config,
)
from openipu.tensorflow.v1.options import (
    auto_select_ipus,
    create_ipu_config,
    select_ipus,
    set_compilation_options,
    set_convolution_options,
    set_experimental_multi_replica_distribution_options,
    set_floating_point_behaviour_options,
    set_gcl_options,
    set_io_tile_options,
    set_ipu_connection_type,
    set_ipu_model_options,
    set_matmul_options,
    set_norm_options,
    set_optimization_options,
    set_pooling_options,
    set_recomputation_options,
    set_report_options,
    set_serialization_options,
    set_transfer_options,
    set_verification_options,
)
from openipu.tensorflow.v1.reports import (
    extract_all_strings_from_event_trace,
    extract_compile_reports,
    extract_execute_reports,
)
from openipu.tensorflow.v1.reports import no_events as extract_all_events
from openipu.tensorflow.v1.reports import no_events as extract_all_types_from_event_trace
from openipu.tensorflow.v1.reports import no_events as extract_poplar_serialized_graphs

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = [
    "DeviceConnectionType",
    "ExecutionProfileType",
    "IPUConfig",
    "KeyId",
    "MergeRemoteBuffersBehaviour",
    "SchedulingAlgorithm",
    "SelectionOrder",
    "SyntheticDataCategory",
    "VerificationOptions",
    "auto_select_ipus",
    "configure_ipu_system",
    "create_ipu_config",
    "dataset_extractor",
    "extract_all_events",
    "extract_all_strings_from_event_trace",
    "extract_all_types_from_event_trace",
    "extract_compile_reports",
    "extract_execute_reports",
    "extract_poplar_serialized_graphs",
    "get_ipu_config",
    "get_num_of_ipus_in_device",
    "ipu_infeed_queue",
    "move_variable_initialization_to_cpu",
    "reset_ipu_seed",
    "running_on_ipu_model",
    "select_ipus",
    "set_compilation_options",
    "set_convolution_options",
    "set_experimental_multi_replica_distribution_options",
    "set_floating_point_behaviour_options",
    "set_gcl_options",
    "set_io_tile_options",
    "set_ipu_connection_type",
    "set_ipu_model_options",
    "set_matmul_options",
    "set_norm_options",
    "set_optimization_options",
    "set_pooling_options",
    "set_recomputation_options",
    "set_report_options",
    "set_serialization_options",
    "set_transfer_options",
    "set_verification_options",
    "use_synthetic_data_for",
]

globals().update(refused.declare(__name__))


class SyntheticDataCategory(enum.IntEnum):
    """Kinds of data that can be made on the device; has the two methods of the original's protobuf enum."""

    Seed = 0
    Infeed = 1
    Outfeed = 2
    HostEmbedding = 3
    Parameters = 4
    Unknown = 5

    @classmethod
    def Name(cls, number: int) -> str:
        """The name of a category's number."""
        return cls(number).name

    @classmethod
    def Value(cls, name: str) -> "SyntheticDataCategory":
        """The category of that name."""
        return cls[name]


def get_num_of_ipus_in_device(ipu_device: str, device: str = "cpu") -> int:
    """How many IPUs a TensorFlow device has, over all processes that share it; 1 while nothing is configured.

    Args:
      ipu_device: its name, such as `/device:IPU:0`.
      device: accepted for compatibility.

    Returns:
      The number of IPUs.
    """
    ordinal = placement.parse_ordinal(ipu_device)
    active = system.active_config()
    if active is None:
        return 1
    devices = system.configured_devices()
    if ordinal >= len(devices):
        raise ValueError(
            f"ipu_device must name a configured device. Expected one of: "
            f"{', '.join(placement.device_name(number) for number in range(len(devices)))}. Received: {ipu_device!r}."
        )
    return devices[ordinal].count * max(1, active.experimental.multi_replica_distribution.process_count)


def reset_ipu_seed(
    seed: int,
    device: str = "/device:IPU:0",
    cpu_device: str = "cpu",
    experimental_identical_replicas: bool = False,
) -> None:
    """Starts the stream of random seeds of a device anew.

    Args:
      seed: where the stream starts.
      device: the device whose executions draw from it.
      cpu_device: accepted for compatibility.
      experimental_identical_replicas: whether all replicas get the same seeds.
    """
    seeds.reset(seed, placement.parse_ordinal(device), experimental_identical_replicas)


def use_synthetic_data_for(synthetic_data_category: int) -> bool:
    """Whether TF_POPLAR_FLAGS asks for data of this kind to be made on the device."""
    flags = environment.poplar_flags()
    name = SyntheticDataCategory(synthetic_data_category).name.lower()
    return flags.use_synthetic_data or name in flags.synthetic_categories


def move_variable_initialization_to_cpu(graph: "tf.Graph | None" = None) -> None:
    """Places everything that computes initial values of a graph's variables on the CPU.

    Call it when the graph is built and before the initialisers run.

    Args:
      graph: the graph; the default one if None.
    """
    import tensorflow as tf

    from openipu.tensorflow import boundary
    from openipu.tensorflow.ipu import sharding

    graph = graph or tf.compat.v1.get_default_graph()
    variables = graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
    for op in sharding.dependencies([variable.initializer for variable in variables]):
        boundary.set_device(op, "/device:CPU:0")
