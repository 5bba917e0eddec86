"""The names of `dropout`."""

from openipu.tensorflow.addons.layers.dropout import Dropout

__all__ = ["Dropout"]
