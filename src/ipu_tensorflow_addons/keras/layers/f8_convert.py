"""The names of `f8_convert`."""

from openipu.tensorflow.addons.layers.f8_convert import ConvertFromF8, ConvertToF8

__all__ = ["ConvertFromF8", "ConvertToF8"]
