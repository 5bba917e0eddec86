"""`fit`, `evaluate` and `predict`: executions on the device, callbacks between them."""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np
import tensorflow as tf

from openipu.program import OutputMode, Plan, Program
from openipu.runtime import Setting, held, prefetch, refuse_forked
from openipu.tensorflow.configuration import devices, synthetic
from openipu.tensorflow.executor.setting import refusing
from openipu.tensorflow.keras import data as sources
from openipu.tensorflow.keras import logs as all_logs
from openipu.tensorflow.keras import planning, resuming, stages
from openipu.tensorflow.keras.fit_arguments import Data, Validation
from openipu.tensorflow.keras.model_programs import CompiledModel, compile_mode, overridden, traced_program
from openipu.tensorflow.keras.steps import Steps

_WEIGHTED_TWICE = "You cannot give `class_weight` and `sample_weight` at the same time."


def fit(model: Any, data: Data, validation: Validation, epochs: int, initial_epoch: int, verbose: Any,
        callbacks: Any) -> Any:  # fmt: skip
    """Train; returns the history."""
    keras = model._ipu.keras
    _check_runnable(model, "fit", "make_train_function", "train_step")
    if validation.split and validation.data is None:
        parts = (data.x, data.y, data.sample_weight)
        (x, y, weight), held_out = keras.split(parts, validation_split=validation.split)
        data = attrs.evolve(data, x=x, y=y, sample_weight=weight)
        validation = attrs.evolve(validation, data=held_out)
    first_epoch, epochs = keras.begin(model, epochs, initial_epoch)
    source, plan, steps = _prepare(model, "train", data, max(epochs - first_epoch, 1))
    held_out = _held_out(model, data, validation)
    callbacks = _callbacks(model, callbacks, verbose, steps, epochs=epochs, add_history=True)
    compiled = compile_mode(model, "train", source, plan, tables=not synthetic.of_model().feeds)
    model.stop_training = False
    callbacks.on_train_begin()
    restored = keras.resume(model, first_epoch, steps.count)
    first_epoch = resuming.agree(model, first_epoch, restored) if plan.instances > 1 else restored
    logs: dict[str, Any] = {}
    with _feeds(model, compiled, source, steps, epochs - first_epoch) as feeds:
        for epoch in range(first_epoch, epochs):
            _reset_metrics(model)
            callbacks.on_epoch_begin(epoch)
            for logs in _executions(model, "train", compiled, steps, feeds, callbacks):  # noqa: B007
                if model.stop_training:
                    break
            epoch_logs = dict(logs)
            if held_out is not None and validation.due(epoch):
                seen = evaluate(model, held_out, 0, callbacks, return_dict=True)
                epoch_logs |= {f"val_{name}": value for name, value in seen.items()}
            callbacks.on_epoch_end(epoch, epoch_logs)
            logs = epoch_logs
            if model.stop_training:
                break
    if epochs > first_epoch:
        keras.finalise(model)
    callbacks.on_train_end(logs=logs)
    return model.history


def evaluate(model: Any, data: Data, verbose: Any, callbacks: Any, return_dict: bool) -> Any:
    """Evaluate; returns the last logs."""
    keras = model._ipu.keras
    _check_runnable(model, "evaluate", "make_test_function")
    source, plan, steps = _prepare(model, "test", data)
    callbacks = _callbacks(model, callbacks, verbose, steps)
    compiled = compile_mode(model, "test", source, plan)
    model.stop_evaluating = False
    callbacks.on_test_begin()
    _reset_metrics(model)
    logs: dict[str, Any] = {}
    with _feeds(model, compiled, source, steps, 1) as feeds:
        for logs in _executions(model, "test", compiled, steps, feeds, callbacks):  # noqa: B007
            if model.stop_evaluating:
                break
    callbacks.on_test_end(logs)
    return logs if return_dict else keras.flatten_logs(model, logs)


def predict(model: Any, data: Data, verbose: Any, callbacks: Any) -> Any:
    """Predict; returns all outputs in the order of the data."""
    _check_runnable(model, "predict", "make_predict_function")
    source, plan, steps = _prepare(model, "predict", data)
    callbacks = _callbacks(model, callbacks, verbose, steps)
    compiled = compile_mode(model, "predict", source, plan)
    model.stop_predicting = False
    callbacks.on_predict_begin()
    parts = []
    with _feeds(model, compiled, source, steps, 1) as feeds:
        for logs in _executions(model, "predict", compiled, steps, feeds, callbacks):
            parts.append(tf.nest.flatten(logs["outputs"]))
            if model.stop_predicting:
                break
    callbacks.on_predict_end()
    return _pack(compiled, [np.concatenate(p) for p in zip(*parts, strict=True)])


def on_batch(model: Any, mode: str, data: Data, reset_metrics: bool, return_dict: bool) -> Any:
    """One step on one batch."""
    keras = model._ipu.keras
    _check_runnable(model, f"{mode}_on_batch", f"make_{mode}_function")
    first = tf.nest.flatten(data.x)[0]
    source = _source(model, attrs.evolve(data, batch_size=len(first)))
    keras.build(model, source.spec, mode)
    outputs = OutputMode.ALL if mode == "predict" else OutputMode.FINAL
    together = devices.instances(model._ipu.strategy.instances)
    plan = Plan(outputs=outputs, stochastic_rounding=devices.stochastic_rounding(1), instances=together)
    compiled = compile_mode(model, mode, source, plan)
    if reset_metrics:
        _reset_metrics(model)
    with refusing():
        feeds = compiled.session.place(lambda: [plan.layout.dealt(b) for b in next(source.blocks(1))])
    results = compiled.run(model, feeds)
    if mode == "predict":
        return _pack(compiled, [plan.layout.first(np.asarray(o)[0]) for o in results.outputs])
    logs = all_logs.of_execution(model, compiled, results)
    return logs if return_dict else keras.flatten_logs(model, logs)


def training_program(model: Any, data: Any, batch_size: int) -> tuple[Program, Plan, Setting]:
    """The program that `fit` would train a pipelined model with, traced but not compiled, for predictions.

    Args:
      model: an extended model.
      data: a batched dataset, or a tuple of arrays.
      batch_size: the micro-batch of arrays.
    """
    keras = model._ipu.keras
    _check_runnable(model, "fit", "make_train_function", "train_step")
    x, y, weight = (data, None, None) if isinstance(data, tf.data.Dataset) else keras.unpack(data)
    source = _source(model, Data(x, y, weight, batch_size=batch_size))
    stages.prepare(model, keras.unpack(source.spec)[0])
    stages.check_pipelinable(model, "train")
    keras.build(model, source.spec, "train")
    return traced_program(model, "train", source, planning.one_update(model))


def _reset_metrics(model: Any) -> None:
    # TensorFlow dies of an exception that a signal raises while it makes a tensor of a value, as metrics do here.
    with held():
        model.reset_metrics()


def _held_out(model: Any, data: Data, validation: Validation) -> Data | None:
    """The data for validation, checked before training: an epoch may be long."""
    given = validation.data
    if given is None:
        return None
    x, y, weight = (given, None, None) if isinstance(given, tf.data.Dataset) else model._ipu.keras.unpack(given)
    size = validation.batch_size or data.batch_size
    held_out = Data(x, y, weight, batch_size=size, steps=validation.steps)
    try:
        planning.plan(model, "test", _source(model, held_out).length, held_out.steps)
    except Exception as error:
        error.add_note("This is about the validation data.")
        raise
    return held_out


def _source(model: Any, data: Data) -> sources.Source:
    keras = model._ipu.keras
    sources.refuse_python_iterables(data.x, keras.python_iterables)
    if isinstance(data.x, tf.data.Dataset):
        if data.y is not None or data.sample_weight is not None:
            raise ValueError("When passing a dataset as x, y and sample_weight must be None: the dataset yields them.")
        dataset = data.x
        if data.class_weight:
            if isinstance(dataset.element_spec, tuple) and len(dataset.element_spec) > 2:
                raise ValueError(_WEIGHTED_TWICE)
            dataset = dataset.map(lambda x, y: (x, y, keras.sample_weights(y, data.class_weight)))
        return sources.from_dataset(dataset)
    if data.x is None or not tf.nest.flatten(data.x):
        raise ValueError("Expect x to be a non-empty array or dataset.")
    weight = data.sample_weight
    if data.class_weight:
        if weight is not None:
            raise ValueError(_WEIGHTED_TWICE)
        weight = keras.sample_weights(np.asarray(data.y), data.class_weight)
    parts = (data.x, data.y, weight)
    while parts[-1] is None:
        parts = parts[:-1]

    def batch_size(examples: int) -> int:
        return data.batch_size or keras.batch_size(examples, data.steps)

    return sources.from_arrays(parts, batch_size, data.shuffle, _ahead(model))


def _prepare(model: Any, mode: str, data: Data, epochs: int = 1) -> tuple[sources.Source, Plan, Steps]:
    """Check the data, build the model for it, and plan."""
    source = _source(model, data)
    keras = model._ipu.keras
    stages.prepare(model, keras.unpack(source.spec)[0])
    stages.check_pipelinable(model, mode)
    keras.build(model, source.spec, mode)
    plan, steps = planning.plan(model, mode, source.length, data.steps, epochs)
    return source, plan, steps


def _callbacks(model: Any, callbacks: Any, verbose: Any, steps: Steps, epochs: int = 1, **kinds: bool) -> Any:
    """Keras' container of the user's callbacks and of its own."""
    verbose = 1 if verbose == "auto" else verbose
    return model._ipu.keras.callback_list(
        callbacks, add_progbar=verbose != 0, model=model, verbose=verbose, epochs=epochs, steps=steps.count, **kinds
    )


def _ahead(model: Any) -> int:
    """How many feeds may wait for the device."""
    return model._ipu.options.infeed.get("prefetch_depth") or 3


@contextlib.contextmanager
def _feeds(
    model: Any, compiled: CompiledModel, source: sources.Source, steps: Steps, epochs: int
) -> Iterator[Iterator]:
    """The feeds of all executions of a call, fetched in the background where they are data."""
    session, engine, plan = compiled.session, compiled.session.engine, compiled.plan
    if not session.setting.offline:
        session.setting.attach()
    executions = steps.count // steps.per_execution
    if session.setting.synthetic.feeds:
        yield itertools.repeat(session.place(list), executions * epochs)
        return
    blocks = source.blocks
    tables = None
    if engine.rows is not None:
        assert isinstance(source, sources.ArraySource)
        blocks = source.row_blocks
        with refusing():
            session.indices.everything(source.arrays)
        tables = engine.place_tables(source.arrays)

    def host() -> Iterator[Any]:
        elements = steps.per_execution * plan.replicas
        if steps.restart:
            for _ in range(epochs):
                yield from itertools.islice(blocks(elements), executions)
        else:
            yield from itertools.islice(blocks(elements), executions * epochs)

    def place(block: Any) -> Any:
        if tables is not None:
            return [engine.place_rows(plan.layout.dealt(block)), *tables]
        with refusing():
            session.indices.one(block)
        return engine.place([plan.layout.dealt(b) for b in block])

    if tables is not None:
        # Row numbers are there already: a thread that hands them over costs more than placing them.
        yield map(place, host())
        return
    with prefetch(host(), place, _ahead(model)) as feeds:
        yield feeds


def _executions(
    model: Any, mode: str, compiled: CompiledModel, steps: Steps, feeds: Iterator, callbacks: Any
) -> Iterator[dict[str, Any]]:
    """One epoch: run the executions, tell the callbacks, yield the logs of each."""
    on_begin = getattr(callbacks, f"on_{mode}_batch_begin")
    on_end = getattr(callbacks, f"on_{mode}_batch_end")
    stepwise = all_logs.is_stepwise(model, mode, compiled)
    for begin in range(0, steps.count, steps.per_execution):
        if not stepwise:
            on_begin(begin)
        feed = next(feeds, None)
        if feed is None:
            raise RuntimeError(
                f"The data ended after {begin} of {steps.count} steps. Give a dataset that is long enough, "
                "or use repeat() when building it."
            )
        results = compiled.run(model, feed)
        model._ipu.keras.advance(model, mode, steps.per_execution)
        if mode == "predict":
            logs = {"outputs": _pack(compiled, all_logs.predictions(model, compiled, results))}
        else:
            logs = all_logs.of_execution(model, compiled, results)
        if stepwise:
            for step, step_logs in all_logs.of_steps(model, compiled, results):
                on_begin(begin + step)
                on_end(begin + step, step_logs)
        else:
            on_end(begin + steps.per_execution - 1, logs)
        yield logs


def _pack(compiled: CompiledModel, outputs: list) -> Any:
    return tf.nest.pack_sequence_as(compiled.structure, outputs)


def _check_runnable(model: Any, call: str, *methods: str) -> None:
    refuse_forked()
    if not tf.executing_eagerly():
        raise RuntimeError(
            f"Detected a call to `Model.{call}` inside a `tf.function`. `Model.{call}` is a high-level endpoint that "
            f"manages its own `tf.function`. Please move the call to `Model.{call}` outside of all enclosing "
            "`tf.function`s. Inside of one, call the model on tensors: `model(x)`."
        )
    if model.run_eagerly:
        raise RuntimeError(
            "Keras models cannot run eagerly when using `IPUStrategy`. Set `run_eagerly=False` when calling `compile`."
        )
    if not call.startswith("predict") and not model._ipu.keras.is_compiled(model):
        raise RuntimeError(
            "You must compile your model before training/testing. Use `model.compile(optimizer, loss)`. "
            f"Received: a call of `{call}`."
        )
    for method in methods:
        if overridden(model, method):
            raise RuntimeError(
                f"The function `{method}` for the model {model.name} has been overridden. This is not supported when "
                "using Keras within an IPUStrategy. Either remove the override from your model definition or set "
                "`enable_keras_extensions=False` when creating the IPUStrategy."
            )
