"""`IPUEstimator`: a model function inside of a loop on the device."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from openipu.tensorflow.capture import placement
from openipu.tensorflow.estimators import checks
from openipu.tensorflow.estimators.base import Built, EstimatorBase
from openipu.tensorflow.estimators.calls import arguments_of, features_and_labels
from openipu.tensorflow.estimators.run_config import RunConfig
from openipu.tensorflow.estimators.specs import ModeKeys, hooks_of
from openipu.tensorflow.feeds import loops
from openipu.tensorflow.feeds.infeed import IPUInfeedQueue
from openipu.tensorflow.feeds.outfeed import IPUOutfeedMode, IPUOutfeedQueue
from openipu.tensorflow.v1 import compiler

v1 = tf.compat.v1


class IPUEstimator(EstimatorBase):
    """Trains, evaluates and runs a model on IPUs.

    Args:
      model_fn: takes `features`, and `labels`, `mode`, `params` and `config` if it wants them; returns an
        `EstimatorSpec` or an `IPUEstimatorSpec`. It is traced inside of a loop on the device.
      model_dir, config, params, warm_start_from: as of `EstimatorBase`.
      train_batch_size, eval_batch_size, predict_batch_size: over all replicas; `params["batch_size"]` is that of one.
    """

    def __init__(
        self,
        model_fn: Callable,
        model_dir: Any = None,
        config: RunConfig | None = None,
        params: dict[str, Any] | None = None,
        warm_start_from: Any = None,
        train_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        predict_batch_size: int | None = None,
    ) -> None:
        super().__init__(model_fn, model_dir, config, params, warm_start_from)
        self._batch_sizes = {
            ModeKeys.TRAIN: train_batch_size,
            ModeKeys.EVAL: eval_batch_size,
            ModeKeys.PREDICT: predict_batch_size,
        }
        checks.check_batch_sizes(self._batch_sizes, self._params, self._replicas)

    def _check_model_fn(self) -> None:
        if "features" not in arguments_of(self._model_fn):
            raise ValueError(f"model_fn ({self._model_fn}) must include features argument.")

    def _input_params(self, mode: str) -> dict[str, Any]:
        params, size = self.params, self._batch_sizes[mode]
        if size is not None:
            params["batch_size"] = size // self._replicas
        return params

    def _queue(self, input_fn: Callable, mode: str) -> IPUInfeedQueue:
        if self._batch_sizes[mode] is not None and "params" not in arguments_of(input_fn):
            raise ValueError(f"input_fn must take `params`, which has the batch size. Received: {input_fn!r}.")
        return super()._queue(input_fn, mode)

    def _spec(self, mode: str, args: tuple, named: dict[str, Any]) -> Any:
        features, labels = features_and_labels(args, named)
        if labels is not None and "labels" not in arguments_of(self._model_fn):
            raise ValueError("model_fn does not take labels, but input_fn returns labels.")
        spec = self._call_model_fn(mode, features=features, labels=labels)
        checks.check_spec(spec, mode)
        checks.check_global_step()
        return spec

    def _loop(self, queue: IPUInfeedQueue, body: Callable) -> tf.Operation:
        """Iterations of a body on the device."""
        with placement.on_device(self._config.ipu_run_config.ordinal):
            return compiler.compile(lambda: loops.repeat(self._iterations, body, [], queue))

    def _loss(self, outfeed: IPUOutfeedQueue) -> tf.Tensor:
        """The mean over iterations and replicas; of a single step, the loss itself."""
        values = tf.reshape(outfeed.dequeue(), [-1])
        return values[0] if self._iterations == 1 else tf.reduce_mean(values)

    def _build_train(self, queue: IPUInfeedQueue) -> Built:
        losses, for_host = IPUOutfeedQueue(), IPUOutfeedQueue(IPUOutfeedMode.LAST)
        made: dict[str, Any] = {}

        def body(*args: Any, **named: Any) -> list[Any]:
            made["spec"] = spec = self._spec(ModeKeys.TRAIN, args, named)
            operations = [losses.enqueue(tf.cast(spec.loss, tf.float32)), _operation(spec.train_op)]
            if getattr(spec, "host_call", None) is not None:
                checks.check_host_call(spec.host_call, self._iterations)
                operations.append(for_host.enqueue(list(spec.host_call[1])))
            checks.check_reduction(self._replicas)
            return operations

        ran = self._loop(queue, body)
        spec = made["spec"]
        with tf.control_dependencies([ran]):
            loss = self._loss(losses)
            after = [] if getattr(spec, "host_call", None) is None else [_on_host(spec.host_call, for_host)]
        with tf.control_dependencies(after):
            loss = tf.identity(loss)
        return Built(loss, loss, hooks_of(spec, ModeKeys.TRAIN))

    def _build_evaluate(self, queue: IPUInfeedQueue) -> Built:
        losses, values = IPUOutfeedQueue(), IPUOutfeedQueue()
        made: dict[str, Any] = {}

        def body(*args: Any, **named: Any) -> list[Any]:
            made["spec"] = spec = self._spec(ModeKeys.EVAL, args, named)
            sent = _updated(spec.eval_metric_ops) if spec.eval_metric_ops else list(_arguments(spec.eval_metrics[1]))
            return [losses.enqueue(tf.cast(spec.loss, tf.float32)), values.enqueue(sent)]

        ran = self._loop(queue, body)
        spec = made["spec"]
        with tf.control_dependencies([ran]):
            loss, received = self._loss(losses), values.dequeue()
        hooks = hooks_of(spec, ModeKeys.EVAL)
        if spec.eval_metric_ops:
            # The value after the last iteration; replicas have their own.
            return Built({name: tf.reduce_mean(value[-1]) for name, value in received.items()}, loss, hooks)
        function, tensors = spec.eval_metrics
        given = dict(zip(tensors, received, strict=True)) if isinstance(tensors, dict) else received
        metrics = function(**given) if isinstance(given, dict) else function(*given)
        updates = {name: update for name, (_, update) in metrics.items()}
        return Built(updates, loss, hooks, summed={name: value for name, (value, _) in metrics.items()})

    def _build_predict(self, queue: IPUInfeedQueue) -> Built:
        outfeed = IPUOutfeedQueue()
        made: dict[str, Any] = {}

        def body(*args: Any, **named: Any) -> tf.Operation:
            made["spec"] = spec = self._spec(ModeKeys.PREDICT, args, named)
            return outfeed.enqueue(spec.predictions)

        ran = self._loop(queue, body)
        with tf.control_dependencies([ran]):
            predictions = outfeed.dequeue()
        return Built(ran, predictions, hooks_of(made["spec"], ModeKeys.PREDICT))


def _updated(metrics: dict[str, Any]) -> dict[str, tf.Tensor]:
    """The values of metrics after their updates."""
    found = {}
    for name, (value, update) in metrics.items():
        if isinstance(update, tf.Operation):
            with tf.control_dependencies([update]):
                update = tf.identity(value)
        found[name] = tf.cast(update, tf.float32)
    return found


def _arguments(tensors: Any) -> list[tf.Tensor]:
    return list(tensors.values()) if isinstance(tensors, dict) else list(tensors)


def _operation(train_op: Any) -> tf.Operation:
    return train_op if isinstance(train_op, tf.Operation) else tf.convert_to_tensor(train_op).op


def _on_host(host_call: Any, outfeed: IPUOutfeedQueue) -> Any:
    function, _ = host_call
    return function(*outfeed.dequeue())
