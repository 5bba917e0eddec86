"""The names of `effective_transformer`."""

from openipu.tensorflow.addons.layers.effective_transformer import EffectiveTransformer

__all__ = ["EffectiveTransformer"]
