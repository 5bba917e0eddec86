"""What all estimators do: one graph and one session for each call, checkpoints in the model's folder, hooks."""

import copy
import functools
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from openipu.errors import UnsupportedError
from openipu.tensorflow.capture import placement
from openipu.tensorflow.configuration import system
from openipu.tensorflow.estimators.calls import call, dataset_of
from openipu.tensorflow.estimators.run_config import RunConfig
from openipu.tensorflow.estimators.specs import ModeKeys
from openipu.tensorflow.feeds.infeed import IPUInfeedQueue
from openipu.tensorflow.keras import versions
from openipu.tensorflow.refusals import Refused, refused_function

log = logging.getLogger("openipu.tensorflow")
v1 = tf.compat.v1

_EXPORT = Refused(
    "a saved model cannot hold a program for the IPU",
    "Restore the checkpoint of model_dir in a graph of its own, and save that with tf.saved_model.",
)


class Built:
    """A model in a graph, ready to be run loop by loop.

    Attributes:
      run: a tensor or operation; running it runs one loop.
      results: what a run gives: the loss, metrics or predictions.
      hooks: those of the model function.
      summed: at the end of an evaluation, metrics by name.
    """

    def __init__(self, run: Any, results: Any, hooks: Sequence[Any] = (), summed: Any = None) -> None:
        self.run, self.results, self.hooks, self.summed = run, results, list(hooks), summed


class EstimatorBase:
    """Trains, evaluates and predicts; subclasses build the three loops.

    Args:
      model_fn: builds the model.
      model_dir: where checkpoints are.
      config: a `RunConfig` for IPUs.
      params: handed to `model_fn` and `input_fn`.
      warm_start_from: refused.
    """

    def __init__(
        self,
        model_fn: Callable,
        model_dir: Any = None,
        config: RunConfig | None = None,
        params: dict[str, Any] | None = None,
        warm_start_from: Any = None,
    ) -> None:
        if not isinstance(config, RunConfig):
            raise ValueError("`config` must be provided with type `ipu_run_config.RunConfig`")
        if warm_start_from is not None:
            raise UnsupportedError(
                "warm_start_from is not supported. Copy the checkpoint into model_dir, or call "
                "tf.train.init_from_checkpoint in model_fn."
            )
        if params is not None and "input_fn" in params:
            raise ValueError("params must not have the key 'input_fn', which is reserved.")
        self._model_fn = model_fn
        self._config = config
        self._params = dict(copy.copy(params) or {})
        self._model_dir = config.folder(model_dir)
        self._check_model_fn()

    @property
    def model_dir(self) -> str:
        """Where checkpoints are."""
        return self._model_dir

    @property
    def config(self) -> RunConfig:
        """How it runs."""
        return self._config

    @property
    def params(self) -> dict[str, Any]:
        """What model and input functions get."""
        return copy.deepcopy(self._params)

    @property
    def model_fn(self) -> Callable:
        """The model function, with the estimator's parameters."""
        return functools.partial(self._model_fn)

    def latest_checkpoint(self) -> str | None:
        """The newest checkpoint of the model's folder."""
        return tf.train.latest_checkpoint(self._model_dir)

    def get_variable_names(self) -> list[str]:
        """The names of all variables in the newest checkpoint."""
        return [name for name, _ in tf.train.list_variables(self._model_dir)]

    def get_variable_value(self, name: str) -> np.ndarray:
        """The value of a variable in the newest checkpoint."""
        return tf.train.load_variable(self._model_dir, name)

    def eval_dir(self, name: str | None = None) -> str:
        """Where summaries of evaluations are."""
        return os.path.join(self._model_dir, "eval" if not name else f"eval_{name}")

    def train(
        self,
        input_fn: Callable,
        hooks: Sequence[Any] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[Any] | None = None,
    ) -> "EstimatorBase":
        """Train for `steps` more steps, or until there were `max_steps` in all; goes on from the newest checkpoint."""
        if steps is not None and max_steps is not None:
            raise ValueError("Can not provide both steps and max_steps.")
        self._check_steps(steps, "steps")
        self._check_steps(max_steps, "max_steps")
        if max_steps is not None and self._trained_steps() >= max_steps:
            log.info("Skipping training since max_steps has already saved.")
            return self
        with self._graph():
            step = self._global_step()
            built = self._build_train(self._queue(input_fn, ModeKeys.TRAIN))
            with tf.control_dependencies([built.results]):
                advanced = step.assign_add(self._iterations, read_value=False)
            with tf.control_dependencies([advanced]):
                loss = tf.identity(built.results, "loss")
            self._train_loop(loss, built, list(hooks or ()), steps, max_steps, saving_listeners)
        return self

    def evaluate(
        self,
        input_fn: Callable,
        steps: int | None = None,
        hooks: Sequence[Any] | None = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """The loss and the metrics over `steps` steps, by name, with the global step of the checkpoint."""
        if steps is None:
            raise ValueError("`steps` must be specified: how many batches are evaluated, for each replica.")
        self._check_steps(steps, "steps")
        with self._graph():
            step = self._global_step()
            built = self._build_evaluate(self._queue(input_fn, ModeKeys.EVAL))
            losses = []
            with self._session(checkpoint_path, [*(hooks or ()), *built.hooks]) as session:
                for _ in range(steps // self._iterations):
                    loss, metrics = session.run((built.results, built.run))
                    losses.append(loss)
                if built.summed:
                    metrics = {**metrics, **session.run(built.summed)}
                found: dict[str, Any] = {key: _plain(value) for key, value in (metrics or {}).items()}
                found.setdefault("loss", _plain(np.mean(losses)))
                found["global_step"] = int(session.run(step))
        self._write_evaluation(found, name)
        log.info("Evaluated at step %d: %s", found["global_step"], found)
        return found

    def predict(
        self,
        input_fn: Callable,
        predict_keys: Any = None,
        hooks: Sequence[Any] | None = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
        num_predictions: int | None = None,
    ) -> Iterator[Any]:
        """Predictions for the elements of the dataset in their order, example by example or batch by batch."""
        keys = None if predict_keys is None else tf.nest.flatten(predict_keys)
        given = 0
        with self._graph():
            self._global_step()
            built = self._build_predict(self._queue(input_fn, ModeKeys.PREDICT))
            session = self._session(checkpoint_path, [*(hooks or ()), *built.hooks])
            try:
                while num_predictions is None or given < num_predictions:
                    try:
                        block = session.run(built.results)
                    except tf.errors.OutOfRangeError as error:
                        log.info("Prediction ended with the dataset: %s", error.message)
                        return
                    for value in _predictions(block, keys, yield_single_examples, self._replicas > 1):
                        if num_predictions is not None and given >= num_predictions:
                            return
                        given += 1
                        yield value
            finally:
                session.close()

    export_saved_model = refused_function("IPUEstimator.export_saved_model", _EXPORT)
    export_savedmodel = refused_function("IPUEstimator.export_savedmodel", _EXPORT)
    experimental_export_all_saved_models = refused_function(
        "IPUEstimator.experimental_export_all_saved_models", _EXPORT
    )

    @property
    def _iterations(self) -> int:
        return self._config.ipu_run_config.iterations_per_loop

    @property
    def _replicas(self) -> int:
        return self._config.ipu_run_config.num_replicas

    def _check_model_fn(self) -> None:
        raise NotImplementedError

    def _build_train(self, queue: IPUInfeedQueue) -> Built:
        raise NotImplementedError

    def _build_evaluate(self, queue: IPUInfeedQueue) -> Built:
        raise NotImplementedError

    def _build_predict(self, queue: IPUInfeedQueue) -> Built:
        raise NotImplementedError

    def _input_params(self, mode: str) -> dict[str, Any]:
        return self.params

    def _call_model_fn(self, mode: str, *args: Any, **offered: Any) -> Any:
        params = self._input_params(mode)
        return call(self._model_fn, *args, mode=mode, params=params, config=self._config, **offered)

    def _graph(self) -> Any:
        """A graph of its own, on the IPUs that the config asks for; layers are named as in any other such graph."""
        options = self._config.ipu_run_config.ipu_options
        if options is None and system.active_config() is None:
            options = system.IPUConfig()
            options.auto_select_ipus = 1
        if options is not None:
            system.configure_ipu_system(options)
        return _fresh_graph(self._config.tf_random_seed)

    def _global_step(self) -> Any:
        with v1.variable_scope(v1.get_variable_scope(), use_resource=True):
            return v1.train.get_or_create_global_step()

    def _queue(self, input_fn: Callable, mode: str) -> IPUInfeedQueue:
        dataset = dataset_of(input_fn, mode, self._input_params(mode), self._config)
        settings = self._config.ipu_run_config
        queue = IPUInfeedQueue(dataset, settings.ordinal, settings.prefetch_depth)
        self._starting = queue.initializer
        return queue

    @property
    def _device(self) -> str:
        return placement.device_name(self._config.ipu_run_config.ordinal)

    def _check_steps(self, steps: int | None, name: str) -> None:
        if steps is not None and steps < 1:
            raise ValueError(f"{name} must be positive. Received: {name}={steps}.")
        if steps is not None and steps % self._iterations:
            raise ValueError(f"{name} ({steps}) must be a multiple of iterations_per_loop ({self._iterations})")

    def _trained_steps(self) -> int:
        newest = self.latest_checkpoint()
        return int(tf.train.load_variable(newest, v1.GraphKeys.GLOBAL_STEP)) if newest else 0

    def _train_loop(
        self, loss: tf.Tensor, built: Built, hooks: list, steps: Any, max_steps: Any, listeners: Any
    ) -> None:
        config = self._config
        saver = v1.train.Saver(
            max_to_keep=config.keep_checkpoint_max,
            keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
            sharded=False,
            defer_build=True,
        )
        v1.summary.scalar("loss", loss)
        saving = []
        if config.save_checkpoints_secs or config.save_checkpoints_steps:
            saving.append(
                v1.train.CheckpointSaverHook(
                    self._model_dir,
                    save_secs=config.save_checkpoints_secs,
                    save_steps=config.save_checkpoints_steps,
                    scaffold=(scaffold := v1.train.Scaffold(saver=saver)),
                    listeners=listeners,
                )
            )
        else:
            scaffold = v1.train.Scaffold(saver=saver)
        stopping = [_Stopping(steps, max_steps)] if steps or max_steps else []
        own: list[Any] = [*stopping, v1.train.NanTensorHook(loss)]
        if config.log_step_count_steps:
            shown = {"loss": loss, "step": v1.train.get_global_step()}
            own.append(v1.train.LoggingTensorHook(shown, every_n_iter=config.log_step_count_steps))
        with v1.train.MonitoredTrainingSession(
            checkpoint_dir=self._model_dir,
            scaffold=scaffold,
            hooks=[_Starting(self._starting), *own, *hooks, *built.hooks],
            chief_only_hooks=saving,
            save_checkpoint_secs=None,
            save_checkpoint_steps=None,
            save_summaries_steps=config.save_summary_steps,
            config=config.session_config,
            log_step_count_steps=config.log_step_count_steps,
        ) as session:
            try:
                while not session.should_stop():
                    session.run([loss, built.run])
            except tf.errors.OutOfRangeError as error:
                # MonitoredSession takes it for the ordinary end of training.
                log.info("Training ended with the dataset: %s", error.message)

    def _session(self, checkpoint_path: str | None, hooks: Sequence[Any]) -> Any:
        path = checkpoint_path or self.latest_checkpoint()
        if path is None:
            raise ValueError(
                f"Could not find trained model in model_dir: {self._model_dir}. Call train first, or give "
                "checkpoint_path."
            )
        creator = v1.train.ChiefSessionCreator(checkpoint_filename_with_path=path, config=self._config.session_config)
        return v1.train.MonitoredSession(creator, hooks=[_Starting(self._starting), *hooks])

    def _write_evaluation(self, found: dict[str, Any], name: str | None) -> None:
        summary = v1.Summary()
        for key, value in found.items():
            if key != "global_step" and np.ndim(value) == 0:
                summary.value.add(tag=key, simple_value=float(value))
        with tf.Graph().as_default():
            writer = v1.summary.FileWriter(self.eval_dir(name))
            writer.add_summary(summary, found["global_step"])
            writer.close()


class _Starting(v1.train.SessionRunHook):
    """Starts the dataset of a session."""

    def __init__(self, initializer: tf.Operation) -> None:
        self._initializer = initializer

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._initializer)


class _Stopping(v1.train.SessionRunHook):
    """Ends training; TensorFlow's own hook expects one step in every run."""

    def __init__(self, more: int | None, last: int | None) -> None:
        self._more, self._last = more, last

    def begin(self) -> None:
        self._step = v1.train.get_global_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        if self._last is None:
            self._last = int(session.run(self._step)) + (self._more or 0)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if run_context.session.run(self._step) >= self._last:
            run_context.request_stop()


class _fresh_graph:
    """A new default graph, in which layers get the names that they would get in a new process."""

    def __init__(self, seed: int | None) -> None:
        self._graph = tf.Graph()
        self._seed = seed

    def __enter__(self) -> tf.Graph:
        self._contexts = [self._graph.as_default(), *(version.fresh_names() for version in versions.in_use())]
        for context in self._contexts:
            context.__enter__()
        if self._seed is not None:
            v1.set_random_seed(self._seed)
        return self._graph

    def __exit__(self, *problem: Any) -> None:
        for context in reversed(self._contexts):
            context.__exit__(*problem)


def _predictions(block: Any, keys: list[str] | None, single: bool, replicated: bool) -> Iterator[Any]:
    """What one loop predicted, in the order of the dataset."""
    if keys is not None:
        if not isinstance(block, dict) or not set(keys) & set(block):
            raise ValueError(f"Expected to run at least one output from {sorted(block)}, provided {keys}.")
        block = {key: block[key] for key in keys if key in block}
    # [step, (replica,) batch, ...]: element k * replicas + r went to replica r.
    axes = 2 if replicated else 1
    batches = tf.nest.map_structure(lambda a: np.reshape(a, (-1, *np.shape(a)[axes:])), block)
    count = len(tf.nest.flatten(batches)[0])
    for number in range(count):
        batch = tf.nest.map_structure(lambda a, n=number: a[n], batches)
        if not single:
            yield batch
            continue
        for row in range(len(tf.nest.flatten(batch)[0])):
            yield tf.nest.map_structure(lambda a, r=row: a[r], batch)


def _plain(value: Any) -> Any:
    return value.item() if np.ndim(value) == 0 and hasattr(value, "item") else value
