"""The objects that say which pipeline stage a layer of a model, or one call of it, belongs to."""

from collections.abc import Sequence
from typing import Any

from openipu.tensorflow.keras.versions import version_of


class _OfLayer:
    """A layer and its stage."""

    is_nested_model = False

    def __init__(self, layer: Any, pipeline_stage: int | None) -> None:
        self._layer = layer
        self.pipeline_stage = pipeline_stage

    @property
    def layer(self) -> Any:
        """The layer."""
        return self._layer


class _OfModel:
    """A model inside a model, and the assignments of its layers."""

    is_nested_model = True

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

    def _inner(self) -> str:
        return "; ".join(str(a) for a in self._assignments)


class _Call:
    """One of the calls of a layer or of a model."""

    def __init__(self, called: Any, node_index: int) -> None:
        self._called = called
        self._node_index = node_index

    @property
    def node_index(self) -> int:
        """Which of the calls this is."""
        return self._node_index

    @property
    def inbound_layers(self) -> list[Any]:
        """The layers whose results this call takes."""
        return inbound_layers(self._called, self._node_index)


class ModelLayerPipelineStageAssignment(_OfLayer, _Call):
    """The stage of one call of a layer, in a subclass of `Model`.

    Args:
      layer: the layer that is called.
      node_index: which of the layer's calls.
      pipeline_stage: its stage; None while it has none.
    """

    def __init__(self, layer: Any, node_index: int, pipeline_stage: int | None = None) -> None:
        _OfLayer.__init__(self, layer, pipeline_stage)
        _Call.__init__(self, layer, node_index)

    def __str__(self) -> str:
        return (
            f"Layer: {self.layer.name} (node index {self.node_index}) is assigned to pipeline stage: "
            f"{self.pipeline_stage}"
        )


class FunctionalLayerPipelineStageAssignment(ModelLayerPipelineStageAssignment):
    """The stage of one call of a layer, in a Functional model."""


class SequentialLayerPipelineStageAssignment(_OfLayer):
    """The stage of a layer of a Sequential model.

    Args:
      layer: the layer.
      pipeline_stage: its stage; None while it has none.
    """

    def __init__(self, layer: Any, pipeline_stage: int | None = None) -> None:
        super().__init__(layer, pipeline_stage)

    def __str__(self) -> str:
        return f"Layer: {self.layer.name} is assigned to pipeline stage: {self.pipeline_stage}"


class NestedModelPipelineStageAssignment(_OfModel, _Call):
    """The stages of the layers of a model that is called inside a subclass of `Model`.

    Args:
      nested_model: the model that is called.
      node_index: which of its calls.
      pipeline_stage_assignments: the assignments of its own layers, for this call.
    """

    def __init__(self, nested_model: Any, node_index: int, pipeline_stage_assignments: Sequence[Any]) -> None:
        _OfModel.__init__(self, nested_model, pipeline_stage_assignments)
        _Call.__init__(self, nested_model, node_index)

    def __str__(self) -> str:
        return f"Nested Model: {self.nested_model.name} (node index {self.node_index}): [{self._inner()}]"


class FunctionalNestedModelPipelineStageAssignment(NestedModelPipelineStageAssignment):
    """The stages of the layers of a model that is called inside a Functional model."""


class SequentialNestedModelPipelineStageAssignment(_OfModel):
    """The stages of the layers of a model that is a layer of a Sequential model.

    Args:
      nested_model: the model.
      pipeline_stage_assignments: the assignments of its own layers.
    """

    def __str__(self) -> str:
        return f"Nested Model: {self.nested_model.name}: [{self._inner()}]"


def inbound_layers(layer: Any, node_index: int) -> list[Any]:
    """The layers whose results a call takes, in the order of its arguments."""
    version = version_of(layer)
    return version.parents(version.inbound_nodes(layer)[node_index])
