"""Gradient tapes of the IPU."""

from openipu.tensorflow.ipu.lazy import lazy

__getattr__, __dir__ = lazy(__name__, {"backprop": "backprop"})
