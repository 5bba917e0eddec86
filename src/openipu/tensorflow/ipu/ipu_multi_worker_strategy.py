"""The strategy for the workers of a TensorFlow cluster."""

from openipu.tensorflow.executor.distributed import IPUMultiWorkerExtendedV1, IPUMultiWorkerStrategyV1
from openipu.tensorflow.ipu import refused
from openipu.tensorflow.keras import extended_classes as _extended_classes  # noqa: F401  (extends models in scope)
from openipu.tensorflow.v1 import strategies as _strategies  # noqa: F401  (runs functions in graphs)

globals().update(refused.declare(__name__))
IPUMultiWorkerExtended = IPUMultiWorkerExtendedV1
IPUMultiWorkerStrategy = IPUMultiWorkerStrategyV1

__all__ = [
    "IPUMultiWorkerExtended",
    "IPUMultiWorkerExtendedV1",
    "IPUMultiWorkerStrategy",
    "IPUMultiWorkerStrategyV1",
]
