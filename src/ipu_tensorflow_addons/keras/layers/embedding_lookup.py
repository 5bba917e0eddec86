"""The names of `embedding_lookup`."""

from openipu.tensorflow.addons.layers.embedding_lookup import Embedding

__all__ = ["Embedding"]
