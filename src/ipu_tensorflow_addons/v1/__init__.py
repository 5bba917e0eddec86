"""The addons for TensorFlow 1."""

from ipu_tensorflow_addons.v1 import layers

__all__ = ["layers"]
