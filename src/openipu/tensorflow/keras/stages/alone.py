"""The training step of one layer alone: its results, and the gradients of its weights and inputs. Priced, never run."""

from collections.abc import Sequence
from typing import Any

import attrs
import jax
import tensorflow as tf

from openipu.program import Pipeline, Plan, Program, Schedule
from openipu.tensorflow.capture.function import capture
from openipu.tensorflow.keras.stages.auto import static_spec
from openipu.tensorflow.keras.versions import version_of
from openipu.tensorflow.program.assembly import Staging, VariableProgram, assemble

# The layer is the first of two stages, so that a prediction shows what waits for its backward pass.
STAGES = 2
PLAN = Plan(
    device_iterations=2, gradient_accumulation=2, pipeline=Pipeline(STAGES, Schedule.GROUPED, tuple(range(STAGES)))
)


def program_of(node: Any, batch_size: int) -> Program:
    """A program that trains one layer by gradient descent.

    Args:
      node: Keras' record of the layer's call.
      batch_size: the micro-batch.
    """
    layer, version, specs = _layer(node), version_of(_layer(node)), specs_of(node, batch_size)
    trained = version.trainable(layer) if version.is_layer(layer) else []
    given: list[tf.Tensor | None] = []

    def step(*values: tf.Tensor) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        fed = dict(zip((id(t) for t in version.node_inputs(node)), values, strict=True))
        watched = [value for value in values if value.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(watched)
            with version.calling(layer) as set_training:
                set_training(True)
                made = [t for t in version.run(node, fed, True, True) if isinstance(t, tf.Tensor)]
        found = tape.gradient([t for t in made if t.dtype.is_floating], [*trained, *watched])
        found = [None if g is None else tf.convert_to_tensor(g) for g in found]
        given[:] = found[: len(trained)]
        return [g for g in given if g is not None], [*made, *(g for g in found[len(trained) :] if g is not None)]

    captured = capture(step, specs, f"the layer {layer.name}")
    weights = [v for v, gradient in zip(trained, given, strict=True) if gradient is not None]
    staging = Staging(lambda scope: 0, STAGES)
    made = assemble(layer.name, specs, captured, len(weights), staging=staging, roots=[layer.name])
    return attrs.evolve(made.program, update=_descent(made, weights))


def specs_of(node: Any, batch_size: int) -> list[tf.TensorSpec]:
    """What a call takes."""
    layer = _layer(node)
    version = version_of(layer)
    return [static_spec(version, tensor, batch_size, layer.name) for tensor in version.node_inputs(node)]


def results_of(node: Any, batch_size: int) -> list[tf.TensorSpec]:
    """What a call gives."""
    layer = _layer(node)
    version = version_of(layer)
    return [static_spec(version, tensor, batch_size, layer.name) for tensor in version.node_outputs(node)]


def _layer(node: Any) -> Any:
    # Keras 3 calls it operation.
    return getattr(node, "operation", None) or node.layer


def _descent(made: VariableProgram, weights: Sequence[tf.Variable]) -> Any:
    # In mixed precision Keras 2 wraps variables.
    own = [getattr(weight, "_variable", weight) for weight in weights]
    places = [next(i for i, v in enumerate(made.shared) if v is w or v is o) for w, o in zip(weights, own, strict=True)]

    def update(
        shared: list[jax.Array], local: list[jax.Array], gradients: list[jax.Array]
    ) -> tuple[list[jax.Array], dict[int, jax.Array]]:
        new = list(shared)
        for place, gradient in zip(places, gradients, strict=True):
            new[place] = shared[place] - (0.01 * gradient).astype(shared[place].dtype)
        return new, {}

    return update
