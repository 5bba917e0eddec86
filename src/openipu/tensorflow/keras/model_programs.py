"""Capture what a Keras model does in one step of training, evaluation or prediction."""

from collections.abc import Callable
from typing import Any

import attrs
import tensorflow as tf

from openipu.program import OutputMode, Plan
from openipu.runtime import Engine, Results
from openipu.tensorflow import devices
from openipu.tensorflow.capture import Captured, capture
from openipu.tensorflow.keras.data import Source
from openipu.tensorflow.programs import VariableProgram, assemble


@attrs.frozen(eq=False)
class Compiled:
    """One mode of a model, compiled.

    Attributes:
      engine: runs one execution.
      structure: of the step's outputs (predictions, or logs of a step that was overridden).
      names: of the results computed at the end of an execution; None when logs are the step's outputs.
    """

    engine: Engine
    structure: Any
    names: tuple[str, ...] | None

    def run(self, model: Any, feeds: list) -> Results:
        """One execution on the model's device."""
        seeds = devices.next_seeds(model._ipu.strategy.device_ordinal, self.engine.executable.plan.replicas)
        return self.engine.run(feeds, seeds)


def compile_mode(model: Any, mode: str, source: Source, plan: Plan) -> Compiled:
    """The compiled program of a mode ("train", "test" or "predict"), made once for each kind of data and plan."""
    state = model._ipu
    spec = tuple((tuple(s.shape), s.dtype.name) for s in source.flat_spec)
    nesting = repr(tf.nest.map_structure(lambda _: 0, source.spec))
    key = (mode, nesting, spec, plan)
    if key not in state.compiled:
        with state.strategy.scope(), state.strategy.replica_context():
            captured, structure, names = _CAPTURES[mode](model, source, plan.outputs is OutputMode.ALL)
        engine = captured.engine(plan)
        state.compiled[key] = Compiled(engine, structure, names)
    return state.compiled[key]


def _train(model: Any, source: Source, every_step: bool) -> tuple[VariableProgram, Any, tuple[str, ...] | None]:
    keras = model._ipu.keras
    variables = keras.trainable(model)
    with_gradient: list[int] = []
    own_logs = every_step or overridden(model, "compute_metrics")

    def gradients(*flat: tf.Tensor) -> tuple[list, Any]:
        values, logs = keras.gradients(model, tf.nest.pack_sequence_as(source.spec, flat))
        with_gradient[:] = [i for i, v in enumerate(values) if v is not None]
        # Sums over micro-batches and replicas need the dense form of embedding gradients.
        return [tf.convert_to_tensor(values[i]) for i in with_gradient], logs if own_logs else None

    def update(*given: tf.Tensor) -> None:
        values: list = [None] * len(variables)
        for i, value in zip(with_gradient, given, strict=True):
            values[i] = value
        keras.apply_gradients(model, values)

    step = capture(gradients, source.flat_spec, f"the training step of {model.name}")
    specs = [tf.TensorSpec(variables[i].shape, variables[i].dtype) for i in with_gradient]
    applied = capture(update, specs, f"the optimizer of {model.name}")
    finish, names = (None, None) if own_logs else _results(model)
    program = assemble(f"{model.name}/train", source.flat_spec, step, len(with_gradient), applied, finish)
    return program, step.structure[1], names


def _test(model: Any, source: Source, every_step: bool) -> tuple[VariableProgram, Any, tuple[str, ...] | None]:
    own_logs = every_step or overridden(model, "test_step") or overridden(model, "compute_metrics")

    def step_function(*flat: tf.Tensor) -> Any:
        logs = model.test_step(tf.nest.pack_sequence_as(source.spec, flat))
        return logs if own_logs else None

    step = capture(step_function, source.flat_spec, f"the evaluation step of {model.name}")
    finish, names = (None, None) if own_logs else _results(model)
    return assemble(f"{model.name}/test", source.flat_spec, step, finish=finish), step.structure, names


def _predict(model: Any, source: Source, every_step: bool) -> tuple[VariableProgram, Any, None]:
    def step_function(*flat: tf.Tensor) -> Any:
        return model.predict_step(tf.nest.pack_sequence_as(source.spec, flat))

    step = capture(step_function, source.flat_spec, f"the prediction step of {model.name}")
    return assemble(f"{model.name}/predict", source.flat_spec, step), step.structure, None


_CAPTURES: dict[str, Callable] = {"train": _train, "test": _test, "predict": _predict}


def _results(model: Any) -> tuple[Captured, tuple[str, ...]]:
    names: list[str] = []

    def results() -> list[tf.Tensor]:
        values = model._ipu.keras.results(model)
        names[:] = list(values)
        return [tf.convert_to_tensor(values[name]) for name in names]

    return capture(results, [], f"the metrics of {model.name}"), tuple(names)


def overridden(model: Any, method: str) -> bool:
    """Whether the user's class replaces one of Keras' own methods."""
    original = model.__original_class__
    keras = model._ipu.keras
    for base in (keras.Sequential, keras.Functional, keras.Model):
        if issubclass(original, base):
            return getattr(original, method) is not getattr(base, method)
    return False
