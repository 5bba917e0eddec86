"""The strategy under the name IPU programs know it by."""

from openipu.tensorflow.strategy import IPUExtended, IPUStrategyV1

IPUStrategy = IPUStrategyV1
IPUExtendedV1 = IPUExtended

__all__ = ["IPUExtendedV1", "IPUStrategy", "IPUStrategyV1"]
