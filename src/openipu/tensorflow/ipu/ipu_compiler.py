"""Compilation of functions in graphs of TensorFlow 1, under the path IPU programs know."""

from openipu.tensorflow.v1.compiler import compile

__all__ = ["compile"]
