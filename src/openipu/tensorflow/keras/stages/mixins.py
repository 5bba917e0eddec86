"""The methods about pipeline stages that models have inside an IPU strategy's scope."""

import functools
import logging
from collections.abc import Callable
from typing import Any

from openipu.tensorflow.keras.stages import auto, building, create, reading, summary, validate
from openipu.tensorflow.keras.stages.graph import Graph, Kind, kind_of
from openipu.tensorflow.keras.stages.state import state_of
from openipu.tensorflow.keras.stages.tracing import graph_of

log = logging.getLogger("openipu.keras")


class ModelStages:
    """Methods of every model; what a subclass of `Model` does when it is built."""

    __original_class__: Any

    def get_pipeline_stage_assignment(self) -> list[Any]:
        """The assignments of the model's layers, in a new list; without stages while there are none."""
        graph = _graph(self, "get")
        return list(state_of(self).assignment) or create.from_stages(graph)

    def set_pipeline_stage_assignment(self, pipeline_stage_assignment: list[Any]) -> None:
        """Assign every layer to a stage: the list of `get_pipeline_stage_assignment` with stages in it.

        Args:
          pipeline_stage_assignment: one assignment for each layer in post-order; for Sequential models stages will do.
        """
        _assign(self, validate.checked(_graph(self, "set"), pipeline_stage_assignment))

    def reset_pipeline_stage_assignment(self) -> None:
        """Make the model one that is not pipelined."""
        _assign(self, [])
        # Otherwise the scopes would be read again.
        state_of(self).read = True

    def print_pipeline_stage_assignment_summary(
        self, line_length: int | None = None, print_fn: Callable[[str], Any] | None = None
    ) -> None:
        """Print a table of layers and their stages.

        Args:
          line_length: width of the table.
          print_fn: called with each line; `print` by default.
        """
        summary.print_summary(_graph(self, "get"), self.get_pipeline_stage_assignment(), line_length, print_fn)

    def auto_pipeline_stage_assignment(
        self, stages: int, batch_size: int = 1, print_fn: Callable[[str], Any] | None = print
    ) -> list[int]:
        """Split the model into stages that take about equally long, by the estimated cost of its layers.

        This is openipu's own: the original has no such method.

        Args:
          stages: number of stages.
          batch_size: micro-batch for which costs are estimated.
          print_fn: called with each line of the result; None prints nothing.

        Returns:
          The stage of every layer in post-order, layers of nested models in their place.
        """
        graph = _graph(self, "set")
        split = auto.split(graph, stages, batch_size)
        stages_of_layers = split.row.of_all_layers(split.assignment)
        made = create.from_stages(graph, stages_of_layers)
        _assign(self, validate.checked(graph, made))
        if print_fn is not None:
            for line in split.lines():
                print_fn(line)
        return stages_of_layers

    def _post_build(self) -> None:
        """Keras' hook for what follows the building of a layer."""
        self.__original_class__._post_build(self)
        if kind_of(self) is Kind.FUNCTIONAL:
            reading.read_functional(self)

    def _init_graph_network(self, *args: Any, **kwargs: Any) -> None:
        """Where Keras 2 makes the graph of a Functional model, which Keras 3 never calls."""
        self.__original_class__._init_graph_network(self, *args, **kwargs)
        reading.read_functional(self)

    # Keras 3 puts a wrapped `build` into every instance, and only a data descriptor of the class comes before that.
    @property
    def build(self) -> Callable[..., None]:
        """Create the model's weights for inputs of a shape, or like `keras.Input`s."""
        inner = self.__dict__.get("build")
        if inner is None:
            inner = self.__original_class__.build.__get__(self)

        @functools.wraps(inner)
        def build(*args: Any, **kwargs: Any) -> None:
            building.build(self, inner, args, kwargs)

        return build

    @build.setter
    def build(self, value: Callable[..., None]) -> None:
        self.__dict__["build"] = value


class FunctionalStages(ModelStages):
    """Methods of Functional models."""


class SequentialStages(ModelStages):
    """Methods of Sequential models: a change of their layers makes their stages invalid."""

    def add(self, layer: Any, *args: Any, **kwargs: Any) -> None:
        """Add a layer as in Keras."""
        self.__original_class__.add(self, layer, *args, **kwargs)
        _layers_changed(self, "add")

    def pop(self, *args: Any, **kwargs: Any) -> Any:
        """Remove the last layer as in Keras."""
        layer = self.__original_class__.pop(self, *args, **kwargs)
        _layers_changed(self, "pop")
        return layer


def _graph(model: Any, verb: str) -> Graph:
    if kind_of(model) is Kind.SUBCLASS:
        if not reading.is_built(model):
            raise RuntimeError(
                f"Cannot {verb} pipeline stage assignments for model `{model.name}` which has not been built yet. "
                "Please call `model.build()` first with the shape of its inputs, or with `keras.Input`s."
            )
        reading.read_subclass(model)
    return graph_of(model)


def _assign(model: Any, assignment: list[Any]) -> None:
    state = state_of(model)
    state.assignment, state.valid = assignment, True
    model._ipu.forget()


def _layers_changed(model: Any, method: str) -> None:
    state = state_of(model)
    if not state.assignment:
        return
    state.valid = False
    model._ipu.forget()
    log.info(
        "`%s` has changed the layers of the pipelined model %s: its pipeline stage assignments are now invalid. "
        "Set them again with `set_pipeline_stage_assignment`.", method, model.name,
    )  # fmt: skip
