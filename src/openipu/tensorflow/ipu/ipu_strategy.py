"""The strategy under the name IPU programs know it by."""

from openipu.tensorflow.strategy import IPUStrategyV1

IPUStrategy = IPUStrategyV1

__all__ = ["IPUStrategy", "IPUStrategyV1"]
