"""IPUConfig, its enums, and what applies it, under the names IPU programs know."""

from openipu.environment import running_on_ipu_model
from openipu.tensorflow.configuration.enums import (
    DeviceConnectionType,
    ExecutionProfileType,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    StochasticRoundingBehaviour,
)
from openipu.tensorflow.configuration.system import (
    IPUConfig,
    IpuOptions,
    configure_ipu_system,
    get_ipu_config,
    reset_ipu_configuration,
)
from openipu.tensorflow.configuration.tree import (
    AttributeMetadata,
    deprecate_config_attribute,
    deprecate_config_attributes,
)
from openipu.tensorflow.v1.verification import KeyId, VerificationOptions

__all__ = [
    "AttributeMetadata",
    "DeviceConnectionType",
    "ExecutionProfileType",
    "IPUConfig",
    "IpuOptions",
    "KeyId",
    "MergeRemoteBuffersBehaviour",
    "SchedulingAlgorithm",
    "SelectionOrder",
    "StochasticRoundingBehaviour",
    "VerificationOptions",
    "configure_ipu_system",
    "deprecate_config_attribute",
    "deprecate_config_attributes",
    "get_ipu_config",
    "reset_ipu_configuration",
    "running_on_ipu_model",
]
