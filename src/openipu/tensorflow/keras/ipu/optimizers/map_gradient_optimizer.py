"""Gradients changed by a function, under the path of old programs."""

from openipu.tensorflow.keras.ipu.optimizers.ipu_optimizer import MapGradientOptimizer

__all__ = ["MapGradientOptimizer"]
