"""What openipu asks of a Keras: `keras3` and `keras2` are the two modules that answer."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import tensorflow as tf

from openipu.frameworks import Private


class KerasVersion(Protocol):
    """How one Keras builds and trains models, and how it keeps their graphs. Nodes are calls of layers.

    Attributes:
      TABLE: what of this Keras is used beyond its public API.
      Model, Sequential, Functional: its classes of models.
      STAGED: the classes whose construction notes the pipeline stage.
      SCOPES_PER_CALL: how often a layer opens its name scope when it is first called.
      BUILDS_FROM_SHAPES: whether `build` of a model is enough to know its graph.
      registered_names: the names that classes are saved under.
      MAKES_SAMPLES: where the function is, and its name, that makes objects only to look at them; None without one.
      python_iterables: classes of data that are iterated in Python.
      unpack: (x, y, sample_weight) of what a dataset yields.
      split: arrays for training and for validation.
      sample_weights: the weight of every example, by its class.
    """

    TABLE: tuple[Private, ...]
    Model: Any
    Sequential: Any
    Functional: Any
    STAGED: Any
    SCOPES_PER_CALL: int
    BUILDS_FROM_SHAPES: bool
    registered_names: dict[type, str]
    MAKES_SAMPLES: tuple[Any, str] | None
    python_iterables: tuple[type, ...]
    unpack: Any
    split: Any
    sample_weights: Any

    def build(self, model: Any, spec: Any, mode: str = "train") -> None:
        """Create every variable of the model and, unless it predicts, of its loss, metrics and optimizer."""
        ...

    def batch_size(self, examples: int, steps: int | None) -> int:
        """Examples of one batch of arrays when the user does not say, but perhaps the steps of an epoch."""
        ...

    def gradients(self, model: Any, data: Any) -> tuple[list, dict, dict]:
        """Trace one micro-batch: gradients, those captured on the way by tag, and logs."""
        ...

    def apply_gradients(self, model: Any, values: list, captured: dict[str, Any]) -> None:
        """Trace the optimizer's update."""
        ...

    def takes_rows(self, model: Any) -> bool:
        """Whether the optimizer gets an embedding's gradient row by row, a row for each time it was looked up."""
        ...

    def trainable(self, model: Any) -> list[tf.Variable]:
        """The variables that are trained."""
        ...

    def results(self, model: Any) -> dict:
        """Trace the current results of all metrics."""
        ...

    def callback_list(self, callbacks: Any, **kwargs: Any) -> Any:
        """The container that calls callbacks; one made earlier is used as it is."""
        ...

    def begin(self, model: Any, epochs: int, initial_epoch: int) -> tuple[int, int]:
        """The epochs to train, from and to."""
        ...

    def resume(self, model: Any, initial_epoch: int, steps: int) -> int:
        """The first epoch, once a callback may have restored an interrupted training."""
        ...

    def advance(self, model: Any, mode: str, steps: int) -> None:
        """Count the steps of an execution where callbacks look for them, if that is not in the callbacks themselves."""
        ...

    def finalise(self, model: Any) -> None:
        """After training: averaged weights become the weights, if the optimizer averages."""
        ...

    def flatten_logs(self, model: Any, logs: dict) -> Any:
        """Logs as the scalar or list that `evaluate` returns."""
        ...

    def steps_per_execution(self, model: Any) -> int:
        """Steps of one execution, as compiled."""
        ...

    def is_compiled(self, model: Any) -> bool:
        """Whether `compile` was called."""
        ...

    def models_being_called(self) -> list[Any]:
        """The models in whose `call` we are, outermost first."""
        ...

    def belongs_to_sequential(self, model: Any) -> bool:
        """Whether this Functional model, just being built, is the inside of a Sequential one."""
        ...

    def graph_model(self, model: Any) -> Any | None:
        """The Functional model that holds the graph; None when there is none (yet)."""
        ...

    def nodes(self, model: Any) -> list[Any]:
        """The calls of a Functional model in the order in which they run."""
        ...

    def operation(self, node: Any) -> Any:
        """What the node calls."""
        ...

    def node_inputs(self, node: Any) -> list[Any]:
        """The symbolic tensors the node takes."""
        ...

    def node_outputs(self, node: Any) -> list[Any]:
        """The symbolic tensors the node makes."""
        ...

    def arguments(self, node: Any) -> tuple[tuple, dict[str, Any]]:
        """The arguments of the call, with symbolic tensors in them."""
        ...

    def is_symbolic(self, value: Any) -> bool:
        """Whether a value stands for a tensor of the graph."""
        ...

    def implied_masks(self, node: Any) -> list[Any]:
        """The masks among a call's arguments that Keras put there because the inputs carry them anyway."""
        ...

    def is_layer(self, thing: Any) -> bool:
        """Whether it is a layer; bare operations open no name scope and have no weights."""
        ...

    def flatten(self, structure: Any) -> list[Any]:
        """The leaves of a structure."""
        ...

    def map_structure(self, function: Callable[[Any], Any], structure: Any) -> Any:
        """Replace the leaves of a structure."""
        ...

    def shape_and_dtype(self, tensor: Any) -> tuple[tuple[int | None, ...], str]:
        """The shape and the dtype of a symbolic tensor."""
        ...

    def run(self, node: Any, values: dict[int, Any], training: bool | None, force: bool) -> list[Any]:
        """Run one call again on values; `force` gives `training` to every layer, as Functional models do."""
        ...

    def calling(self, model: Any) -> contextlib.AbstractContextManager[Callable[[bool | None], None]]:
        """Be inside a call of the model; gives the function that says whether what follows is training."""
        ...

    def scope(self, model: Any) -> contextlib.AbstractContextManager:
        """The name scope that a call of the model opens."""
        ...

    def infer(self, function: Callable[..., Any], *symbolic: Any) -> Any:
        """Run a function of tensors for its shapes only."""
        ...

    def argument_order(self, model: Any, given: Any) -> list[Any]:
        """What a nested model is called with, in the order of its graph's inputs."""
        ...

    def symbolic(self, model: Any, shape: tuple, dtype: str) -> Any:
        """A symbolic input for the `call` of a subclassed model, in the dtype in which the model gets it."""
        ...

    def symbolic_like(self, model: Any, x: Any) -> Any:
        """Symbolic inputs like tensors, their specs, other symbolic inputs, or plain shapes of floats."""
        ...

    def built_shape(self, model: Any) -> Any:
        """The shape of the inputs a subclassed model was built for; None when it is not known."""
        ...

    def takes_training(self, model: Any) -> bool:
        """Whether the model's `call` has an argument of this name."""
        ...

    def trace(
        self, model: Any, args: tuple, kwargs: dict[str, Any], flat_inputs: list[Any], training: bool | None
    ) -> tuple[list[Any], Any]:
        """The calls that a subclassed model's `call` makes on symbolic inputs, and what it returns."""
        ...

    def forget(self, traced: Sequence[Any]) -> None:
        """Take the nodes of a trace out of the layers again: they were only looked at."""
        ...

    def variables(self, layer: Any) -> list[Any]:
        """All variables of a layer: weights, statistics, seeds."""
        ...

    def all_layers(self, model: Any) -> list[Any]:
        """Every layer inside a model, at any depth."""
        ...

    def saved_order(self, model: Any) -> list[Any]:
        """What a saved Functional model numbers its layers by."""
        ...

    def in_call(self) -> bool:
        """Whether some layer is being called right now."""
        ...

    def inbound_nodes(self, layer: Any) -> list[Any]:
        """The calls of a layer that were recorded."""
        ...

    def parents(self, node: Any) -> list[Any]:
        """What makes the tensors that a call takes, in the order of its arguments."""
        ...

    def fresh_names(self) -> contextlib.AbstractContextManager[None]:
        """Let layers that are made inside be named as the first of their kind."""
        ...
