"""The names of `ipu_layer`."""

from openipu.tensorflow.addons.layers.ipu_layer import IPULayer

__all__ = ["IPULayer"]
