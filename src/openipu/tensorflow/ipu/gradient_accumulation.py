"""How the gradients of several micro-batches become one, under the name IPU programs know."""

from openipu.tensorflow.ops.gradient_reduction import GradientAccumulationReductionMethod

__all__ = ["GradientAccumulationReductionMethod"]
