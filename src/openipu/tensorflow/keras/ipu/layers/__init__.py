"""Layers that record gradients on their way back through a model, as `keras.ipu.layers`."""

from openipu.tensorflow.keras.ipu.layers.capture_upstream_gradients import (
    CaptureActivationGradients,
    CaptureUpstreamGradients,
)

__all__ = ["CaptureActivationGradients", "CaptureUpstreamGradients"]
