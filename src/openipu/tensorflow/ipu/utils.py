"""Helpers that IPU programs call: seeds, synthetic data, and questions about the configured devices."""

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from openipu import environment
from openipu.environment import running_on_ipu_model
from openipu.errors import UnsupportedError
from openipu.tensorflow import placement
from openipu.tensorflow import seed as seeds
from openipu.tensorflow.ipu import config
from openipu.tensorflow.ipu.config import (
    DeviceConnectionType,
    ExecutionProfileType,
    IPUConfig,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    configure_ipu_system,
    get_ipu_config,
)

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = [
    "DeviceConnectionType",
    "ExecutionProfileType",
    "IPUConfig",
    "MergeRemoteBuffersBehaviour",
    "SchedulingAlgorithm",
    "SelectionOrder",
    "SyntheticDataCategory",
    "configure_ipu_system",
    "export_dataset_to_file",
    "export_inputs_to_file",
    "export_variables_from_live_model",
    "export_variables_from_live_session",
    "get_ipu_config",
    "get_num_of_ipus_in_device",
    "import_data_in_live_model",
    "import_data_in_live_session",
    "move_variable_initialization_to_cpu",
    "reset_ipu_seed",
    "running_on_ipu_model",
    "use_synthetic_data_for",
]


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
    active = config.active_config()
    if active is None:
        return 1
    devices = config.configured_devices()
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

    from openipu.tensorflow.ipu import sharding

    graph = graph or tf.compat.v1.get_default_graph()
    variables = graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
    for op in sharding.dependencies([variable.initializer for variable in variables]):
        op._set_device("/device:CPU:0")


def _offline_runner_tool(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise UnsupportedError(
            f"ipu.utils.{name} is not supported: it writes or reads files of the offline Poplar runner, which runs on "
            "IPU hardware only. Store data with tf.data.Dataset.save and variables with tf.train.Checkpoint instead."
        )

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Refused: `{name}` belongs to the offline Poplar runner, which needs IPU hardware."
    return refuse


export_dataset_to_file = _offline_runner_tool("export_dataset_to_file")
export_inputs_to_file = _offline_runner_tool("export_inputs_to_file")
export_variables_from_live_session = _offline_runner_tool("export_variables_from_live_session")
export_variables_from_live_model = _offline_runner_tool("export_variables_from_live_model")
import_data_in_live_session = _offline_runner_tool("import_data_in_live_session")
import_data_in_live_model = _offline_runner_tool("import_data_in_live_model")
