"""The objects that say which pipeline stage a layer of a model, or one call of it, belongs to."""

from collections.abc import Sequence
from typing import Any

from openipu.tensorflow.keras.versions import version_of


class ModelLayerPipelineStageAssignment:
    """The stage of one call of a layer, in a subclass of `Model`.

    Args:
      layer: the layer that is called.
      node_index: which of the layer's calls.
      pipeline_stage: its stage; None while it has none.
    """

    def __init__(self, layer: Any, node_index: int, pipeline_stage: int | None = None) -> None:
        self._layer = layer
        self._node_index = node_index
        self.pipeline_stage = pipeline_stage

    @property
    def layer(self) -> Any:
        """The layer that is called."""
        return self._layer

    @property
    def node_index(self) -> int:
        """Which of the layer's calls this is."""
        return self._node_index

    @property
    def inbound_layers(self) -> list[Any]:
        """The layers whose results this call takes."""
        return inbound_layers(self._layer, self._node_index)

    @property
    def pipeline_stage(self) -> int | None:
        """The stage, None while there is none."""
        return self._pipeline_stage

    @pipeline_stage.setter
    def pipeline_stage(self, value: int | None) -> None:
        self._pipeline_stage = value

    @property
    def is_nested_model(self) -> bool:
        """Whether this stands for a model inside the model."""
        return False

    def __str__(self) -> str:
        return (
            f"Layer: {self.layer.name} (node index {self.node_index}) is assigned to pipeline stage: "
            f"{self.pipeline_stage}"
        )


class FunctionalLayerPipelineStageAssignment(ModelLayerPipelineStageAssignment):
    """The stage of one call of a layer, in a Functional model."""


class SequentialLayerPipelineStageAssignment:
    """The stage of a layer of a Sequential model.

    Args:
      layer: the layer.
      pipeline_stage: its stage; None while it has none.
    """

    def __init__(self, layer: Any, pipeline_stage: int | None = None) -> None:
        self._layer = layer
        self.pipeline_stage = pipeline_stage

    @property
    def layer(self) -> Any:
        """The layer."""
        return self._layer

    @property
    def pipeline_stage(self) -> int | None:
        """The stage, None while there is none."""
        return self._pipeline_stage

    @pipeline_stage.setter
    def pipeline_stage(self, value: int | None) -> None:
        self._pipeline_stage = value

    @property
    def is_nested_model(self) -> bool:
        """Whether this stands for a model inside the model."""
        return False

    def __str__(self) -> str:
        return f"Layer: {self.layer.name} is assigned to pipeline stage: {self.pipeline_stage}"


class NestedModelPipelineStageAssignment:
    """The stages of the layers of a model that is called inside a subclass of `Model`.

    Args:
      nested_model: the model that is called.
      node_index: which of its calls.
      pipeline_stage_assignments: the assignments of its own layers, for this call.
    """

    def __init__(self, nested_model: Any, node_index: int, pipeline_stage_assignments: Sequence[Any]) -> None:
        self._nested_model = nested_model
        self._node_index = node_index
        self._assignments = list(pipeline_stage_assignments)

    @property
    def nested_model(self) -> Any:
        """The model that is called."""
        return self._nested_model

    @property
    def node_index(self) -> int:
        """Which of its calls this is."""
        return self._node_index

    @property
    def inbound_layers(self) -> list[Any]:
        """The layers whose results this call takes."""
        return inbound_layers(self._nested_model, self._node_index)

    @property
    def pipeline_stage_assignments(self) -> list[Any]:
        """The assignments of its layers, in a new list."""
        return list(self._assignments)

    @property
    def is_nested_model(self) -> bool:
        """Whether this stands for a model inside the model."""
        return True

    def __str__(self) -> str:
        inner = "; ".join(str(a) for a in self._assignments)
        return f"Nested Model: {self.nested_model.name} (node index {self.node_index}): [{inner}]"


class FunctionalNestedModelPipelineStageAssignment(NestedModelPipelineStageAssignment):
    """The stages of the layers of a model that is called inside a Functional model."""


class SequentialNestedModelPipelineStageAssignment:
    """The stages of the layers of a model that is a layer of a Sequential model.

    Args:
      nested_model: the model.
      pipeline_stage_assignments: the assignments of its own layers.
    """

    def __init__(self, nested_model: Any, pipeline_stage_assignments: Sequence[Any]) -> None:
        self._nested_model = nested_model
        self._assignments = list(pipeline_stage_assignments)

    @property
    def nested_model(self) -> Any:
        """The model."""
        return self._nested_model

    @property
    def pipeline_stage_assignments(self) -> list[Any]:
        """The assignments of its layers, in a new list."""
        return list(self._assignments)

    @property
    def is_nested_model(self) -> bool:
        """Whether this stands for a model inside the model."""
        return True

    def __str__(self) -> str:
        inner = "; ".join(str(a) for a in self._assignments)
        return f"Nested Model: {self.nested_model.name}: [{inner}]"


def inbound_layers(layer: Any, node_index: int) -> list[Any]:
    """The layers whose results a call takes, in the order of its arguments."""
    version = version_of(layer)
    return version.parents(version.inbound_nodes(layer)[node_index])
