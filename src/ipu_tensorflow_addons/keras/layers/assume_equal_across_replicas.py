"""The names of `assume_equal_across_replicas`."""

from openipu.tensorflow.addons.layers.identities import AssumeEqualAcrossReplicas

__all__ = ["AssumeEqualAcrossReplicas"]
