"""The names of `ctc`."""

from openipu.tensorflow.addons.layers.ctc import CTCInferenceLayer, CTCLoss, CTCPredictionsLayer

__all__ = ["CTCInferenceLayer", "CTCLoss", "CTCPredictionsLayer"]
