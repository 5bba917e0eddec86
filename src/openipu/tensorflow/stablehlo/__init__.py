"""Lowering of StableHLO text, as TensorFlow captures it, to functions on JAX arrays."""

from openipu.tensorflow.stablehlo.custom_calls import custom_call, holding_call
from openipu.tensorflow.stablehlo.lowered import Lowered, lower

__all__ = ["Lowered", "custom_call", "holding_call", "lower"]
