"""Contexts and tapes that keep the gradients which `capture_upstream_gradients` sees."""

from openipu.tensorflow.ops.gradient_capture import (
    GradientCaptureContext,
    GradientCaptureTape,
    num_gradient_collection_tapes,
)

__all__ = ["GradientCaptureContext", "GradientCaptureTape", "num_gradient_collection_tapes"]
