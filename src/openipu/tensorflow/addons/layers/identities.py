"""Layers that pass their inputs on: promises and hints to the IPU's compiler."""

from typing import Any

from openipu.tensorflow.addons.keras import keras, registered
from openipu.tensorflow.ipu.ops.cross_replica_ops import assume_equal_across_replicas
from openipu.tensorflow.ipu.ops.pipelining_ops import recomputation_checkpoint


@registered
class AssumeEqualAcrossReplicas(keras.layers.Layer):
    """The inputs as they are; that they are equal on all replicas is the caller's promise.

    Args:
      inplace: accepted for compatibility.
    """

    def __init__(self, inplace: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._inplace = inplace

    def call(self, inputs: Any, **kwargs: Any) -> Any:
        """The inputs."""
        return assume_equal_across_replicas(inputs, self._inplace)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {**super().get_config(), "inplace": self._inplace}


@registered
class RecomputationCheckpoint(keras.layers.Layer):
    """The inputs as they are, marked as worth storing rather than computing again."""

    def call(self, inputs: Any, **kwargs: Any) -> Any:
        """The inputs."""
        return recomputation_checkpoint(inputs, self.name)
