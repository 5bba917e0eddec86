"""Capture what a Keras model does in one step of training, evaluation or prediction."""

import types
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import tensorflow as tf

from openipu import instances
from openipu.compiler import on_one_device, progress
from openipu.program import OutputMode, Plan, Program
from openipu.runtime import Results, Session, Setting, compiling
from openipu.tensorflow.capture.function import Captured, capture
from openipu.tensorflow.configuration import devices, synthetic
from openipu.tensorflow.executor.setting import run, setting_of, showing_compilation
from openipu.tensorflow.keras import stages
from openipu.tensorflow.keras.data import Source
from openipu.tensorflow.keras.planning import accumulators
from openipu.tensorflow.program.assembly import Staging, VariableProgram, assemble


@attrs.frozen(eq=False)
class CompiledModel:
    """One mode of a model, compiled.

    Attributes:
      session: runs executions.
      structure: of the step's outputs (predictions, or logs of a step that was overridden).
      names: of the results computed at the end of an execution; None when logs are the step's outputs.
    """

    session: Session
    structure: Any
    names: tuple[str, ...] | None
    _unread: list[int] = attrs.field(
        init=False, default=attrs.Factory(lambda self: [0] * self.plan.all_replicas, takes_self=True)
    )

    @property
    def plan(self) -> Plan:
        """How it is spread."""
        return self.session.plan

    def run(self, model: Any, feeds: Any) -> Results:
        """One execution on the model's device."""
        seeds = self._unread
        if self.session.draws:
            seeds = devices.next_seeds(model._ipu.strategy.device_ordinal, self.plan.all_replicas)
        return run(self.session, feeds, seeds)


def compile_mode(model: Any, mode: str, source: Source, plan: Plan, tables: bool = False) -> CompiledModel:
    """The compiled program of a mode ("train", "test" or "predict"), made once for each kind of data and plan.

    Args:
      model, mode, source, plan: what is to be compiled.
      tables: keep the data on the device, where that is possible, because it will be read more than once.
    """
    state = model._ipu
    spec = tuple((tuple(s.shape), s.dtype.name) for s in source.flat_spec)
    nesting = repr(tf.nest.map_structure(lambda _: 0, source.spec))
    rows = source.rows if tables and on_one_device(plan) else None
    if plan.instances > 1 and tables:
        # One program for all: their tables are of one size, or none has any.
        sizes = instances.gather(np.array(rows or 0), "rows of tables")
        rows = int(sizes.max()) if sizes.min() else None
    key = (mode, nesting, spec, plan, rows)
    with compiling():
        if key not in state.compiled:
            with showing_compilation(f"{model.name}/{mode}"):
                progress.begin("Capture")
                captured, structure, names = _captured(model, mode, source, plan)
                session = captured.session(plan, _setting(model, plan), rows)
            state.compiled[key] = CompiledModel(session, structure, names)
        return state.compiled[key]


def traced_program(model: Any, mode: str, source: Source, plan: Plan) -> tuple[Program, Plan, Setting]:
    """The program of a mode, not compiled, and how it would run."""
    with compiling():
        return _captured(model, mode, source, plan)[0].program, plan, _setting(model, plan)


def _captured(model: Any, mode: str, source: Source, plan: Plan) -> tuple[VariableProgram, Any, tuple[str, ...] | None]:
    with model._ipu.strategy.scope(), model._ipu.strategy.replica_context():
        return _CAPTURES[mode](model, source, plan)


def _train(model: Any, source: Source, plan: Plan) -> tuple[VariableProgram, Any, tuple[str, ...] | None]:
    keras = model._ipu.keras
    own_logs = plan.outputs is OutputMode.ALL or overridden(model, "compute_metrics")
    given: list[Any] = []
    captured: dict[str, Any] = {}
    # Sums over steps and replicas need the dense form of an embedding's gradient.
    dense = plan.all_replicas > 1 or plan.gradient_accumulation > 1 or not keras.takes_rows(model)

    def gradients(*flat: tf.Tensor) -> tuple[list, Any]:
        values, kept, logs = keras.gradients(model, tf.nest.pack_sequence_as(source.spec, flat))
        if dense:
            values = [v if v is None else tf.convert_to_tensor(v) for v in values]
        given[:] = values
        captured.update(kept)
        return [*_components(values), *tf.nest.flatten(kept)], logs if own_logs else None

    def update(*flat: tf.Tensor) -> None:
        count = len(_components(given))
        kept = tf.nest.pack_sequence_as(captured, flat[count:])
        keras.apply_gradients(model, _from_components(given, flat[:count]), kept)

    step = capture(gradients, source.flat_spec, f"the training step of {model.name}")
    _show(model, step.graph.traced)
    if given and all(value is None for value in given):
        names = [v.name for v in keras.trainable(model)]
        raise ValueError(f"No gradients provided for any variable: {names}. The loss does not depend on them.")
    specs = [tf.TensorSpec(t.shape, t.dtype) for t in (*_components(given), *tf.nest.flatten(captured))]
    applied = capture(update, specs, f"the optimizer of {model.name}") if specs else None
    finish, names = (None, None) if own_logs else _results(model)
    program = assemble(
        f"{model.name}/train", source.flat_spec, step, len(specs), applied, finish, _staging(model, plan),
        accumulators(model, plan, [v is not None for v in given], len(tf.nest.flatten(captured))),
        bool(devices.traps()),
    )  # fmt: skip
    return program, step.structure[1], names


def _show(model: Any, graph: Any) -> None:
    """Put the graph of the training step where the callback TensorBoard looks for it."""
    concrete = types.SimpleNamespace(graph=graph)
    traced = types.SimpleNamespace(function_spec=None, _concrete_variable_creation_fn=concrete)
    # Keras 3 reads the first, Keras 2 the second.
    model.train_function = model.train_tf_function = traced


def _setting(model: Any, plan: Plan) -> Setting:
    """How the model's programs run, and what its options mean to an IPU."""
    ordinal, options = model._ipu.strategy.device_ordinal, model._ipu.options
    pipelined = plan.pipeline is not None
    keywords = options.pipelining_kwargs if pipelined else options.accumulation_kwargs
    return setting_of(ordinal, synthetic.of_model(), pipelined, keywords, options.infeed)


def _staging(model: Any, plan: Plan) -> Staging | None:
    return None if plan.pipeline is None else Staging(stages.stage_of_scope(model), plan.pipeline.stages)


def _components(gradients: list) -> list[tf.Tensor]:
    """The tensors that gradients are made of; a variable without a gradient has none."""
    flat: list[tf.Tensor] = []
    for gradient in gradients:
        if isinstance(gradient, tf.IndexedSlices):
            flat += [gradient.values, gradient.indices]
        elif gradient is not None:
            flat.append(gradient)
    return flat


def _from_components(gradients: list, flat: Sequence[tf.Tensor]) -> list:
    """Gradients like the given ones, from other tensors."""
    tensors = iter(flat)
    made: list = []
    for gradient in gradients:
        if isinstance(gradient, tf.IndexedSlices):
            shape = None if gradient.dense_shape is None else tf.constant(tf.get_static_value(gradient.dense_shape))
            made.append(tf.IndexedSlices(next(tensors), next(tensors), shape))
        else:
            made.append(None if gradient is None else next(tensors))
    return made


def _test(model: Any, source: Source, plan: Plan) -> tuple[VariableProgram, Any, tuple[str, ...] | None]:
    own_logs = plan.outputs is OutputMode.ALL or overridden(model, "test_step") or overridden(model, "compute_metrics")

    def step_function(*flat: tf.Tensor) -> Any:
        logs = model.test_step(tf.nest.pack_sequence_as(source.spec, flat))
        return logs if own_logs else None

    step = capture(step_function, source.flat_spec, f"the evaluation step of {model.name}")
    finish, names = (None, None) if own_logs else _results(model)
    program = assemble(
        f"{model.name}/test",
        source.flat_spec,
        step,
        finish=finish,
        staging=_staging(model, plan),
        traps=bool(devices.traps()),
    )
    return program, step.structure, names


def _predict(model: Any, source: Source, plan: Plan) -> tuple[VariableProgram, Any, None]:
    def step_function(*flat: tf.Tensor) -> Any:
        return model.predict_step(tf.nest.pack_sequence_as(source.spec, flat))

    step = capture(step_function, source.flat_spec, f"the prediction step of {model.name}")
    program = assemble(
        f"{model.name}/predict", source.flat_spec, step, staging=_staging(model, plan), traps=bool(devices.traps())
    )
    return program, step.structure, None


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
