"""The strategy under the name IPU programs know it by."""

from openipu.tensorflow.executor.strategy import IPUExtended, IPUStrategyV1
from openipu.tensorflow.keras import extended_classes  # noqa: F401  (Keras models are prepared with a strategy)
from openipu.tensorflow.v1 import strategies as _strategies  # noqa: F401  (runs functions in graphs)

IPUStrategy = IPUStrategyV1
IPUExtendedV1 = IPUExtended

__all__ = ["IPUExtendedV1", "IPUStrategy", "IPUStrategyV1"]
