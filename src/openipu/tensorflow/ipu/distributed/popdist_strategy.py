"""The strategy for the instances that poprun starts."""

from openipu.tensorflow.executor.distributed import PopDistExtendedV1, PopDistStrategy
from openipu.tensorflow.ipu import refused
from openipu.tensorflow.keras import extended_classes as _extended_classes  # noqa: F401  (extends models in scope)
from openipu.tensorflow.v1 import strategies as _strategies  # noqa: F401  (runs functions in graphs)

globals().update(refused.declare(__name__))

__all__ = ["PopDistExtendedV1", "PopDistStrategy"]
