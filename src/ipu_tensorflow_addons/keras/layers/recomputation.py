"""The names of `recomputation`."""

from openipu.tensorflow.addons.layers.identities import RecomputationCheckpoint

__all__ = ["RecomputationCheckpoint"]
