"""The mean of gradients over replicas, under the path of old programs."""

from openipu.tensorflow.keras.ipu.optimizers.ipu_optimizer import CrossReplicaOptimizer

__all__ = ["CrossReplicaOptimizer"]
