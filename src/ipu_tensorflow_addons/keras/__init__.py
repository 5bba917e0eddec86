"""The addons for Keras."""

from ipu_tensorflow_addons.keras import layers, optimizers

__all__ = ["layers", "optimizers"]
