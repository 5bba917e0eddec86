"""`IPUPipelineEstimator`: a model in stages, over micro-batches."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from openipu.tensorflow.capture import placement
from openipu.tensorflow.estimators.base import Built, EstimatorBase
from openipu.tensorflow.estimators.calls import arguments_of
from openipu.tensorflow.estimators.specs import ModeKeys, hooks_of
from openipu.tensorflow.feeds.infeed import IPUInfeedQueue
from openipu.tensorflow.feeds.outfeed import IPUOutfeedQueue
from openipu.tensorflow.ops.gradient_reduction import GradientAccumulationReductionMethod as Method
from openipu.tensorflow.pipelines.pipeline import pipeline
from openipu.tensorflow.v1 import compiler


class _Fields(NamedTuple):
    mode: str
    computational_stages: Any
    gradient_accumulation_count: int | None
    eval_metrics_fn: Any
    optimizer_function: Any
    device_mapping: Any
    loss_accumulator_dtype: Any
    training_hooks: Any
    evaluation_hooks: Any
    prediction_hooks: Any
    reduction_method: Any
    pipeline_op_kwargs: dict[str, Any]


class IPUPipelineEstimatorSpec(_Fields):
    """What a model function builds.

    Args:
      mode: one of `ModeKeys`.
      computational_stages, gradient_accumulation_count, optimizer_function, device_mapping, reduction_method: as of
        `pipelining_ops.pipeline`.
      eval_metrics_fn: takes what the last stage returns, on the host; returns tensors by name, one of them "loss".
      loss_accumulator_dtype: of the sum of losses.
      training_hooks, evaluation_hooks, prediction_hooks: added to the hooks of the call.
      **pipeline_op_kwargs: other arguments of `pipelining_ops.pipeline`.
    """

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        computational_stages: Any,
        gradient_accumulation_count: int | None = None,
        eval_metrics_fn: Callable | None = None,
        optimizer_function: Callable | None = None,
        device_mapping: Any = None,
        loss_accumulator_dtype: Any = None,
        training_hooks: Any = None,
        evaluation_hooks: Any = None,
        prediction_hooks: Any = None,
        reduction_method: Any = Method.SUM,
        **pipeline_op_kwargs: Any,
    ) -> "IPUPipelineEstimatorSpec":
        if gradient_accumulation_count is None:
            raise ValueError("`IPUPipelineEstimatorSpec` must contain `gradient_accumulation_count`")
        if mode == ModeKeys.TRAIN and optimizer_function is None:
            raise ValueError("`IPUPipelineEstimatorSpec` must contain `optimizer_function` when training")
        if mode == ModeKeys.EVAL and eval_metrics_fn is None:
            raise ValueError("`IPUPipelineEstimatorSpec` must contain `eval_metrics_fn` when evaluating")
        if "accumulate_outfeed" in pipeline_op_kwargs:
            raise ValueError("`accumulate_outfeed` must not be given: the estimator sums the losses itself")
        return super().__new__(
            cls,
            mode,
            computational_stages,
            gradient_accumulation_count,
            eval_metrics_fn,
            optimizer_function,
            device_mapping,
            loss_accumulator_dtype,
            training_hooks,
            evaluation_hooks,
            prediction_hooks,
            reduction_method,
            pipeline_op_kwargs,
        )


class IPUPipelineEstimator(EstimatorBase):
    """Trains, evaluates and runs a pipelined model on IPUs.

    Args:
      model_fn: takes `mode`, `params` and `config` as it likes; returns an `IPUPipelineEstimatorSpec`.
      model_dir, config, params, warm_start_from: as of `EstimatorBase`. A loop of `iterations_per_loop` micro-batches
        has as many updates as the accumulation count allows.
    """

    def _check_model_fn(self) -> None:
        for name in ("features", "labels"):
            if name in arguments_of(self._model_fn):
                raise ValueError(f"model_fn must not take {name}: they are arguments of the first stage.")

    def _spec(self, mode: str) -> IPUPipelineEstimatorSpec:
        spec = self._call_model_fn(mode)
        if not isinstance(spec, IPUPipelineEstimatorSpec):
            raise ValueError(f"model_fn must return an IPUPipelineEstimatorSpec. Received: {type(spec).__name__}.")
        count = spec.gradient_accumulation_count
        if count is None or self._iterations % count or self._iterations < count:
            raise ValueError(
                f"`iterations_per_loop` must be a multiple of `gradient_accumulation_count`. Received: "
                f"iterations_per_loop={self._iterations}, gradient_accumulation_count={count}."
            )
        mapping = spec.device_mapping
        used = max(mapping) + 1 if mapping else len(spec.computational_stages)
        shards = self._config.ipu_run_config.num_shards
        if not shards / 2 < used <= shards:
            raise ValueError(
                f"This pipeline requires {used} devices, but `IPURunConfig` was configured with {shards} shards: "
                "num_shards must be the number of devices, rounded up to a power of two."
            )
        return spec

    def _pipeline(
        self, spec: IPUPipelineEstimatorSpec, queue: IPUInfeedQueue, outfeed: IPUOutfeedQueue, **options: Any
    ) -> tf.Operation:
        assert spec.gradient_accumulation_count is not None
        repeats = self._iterations // spec.gradient_accumulation_count

        def run() -> tf.Operation:
            return pipeline(
                computational_stages=spec.computational_stages,
                gradient_accumulation_count=spec.gradient_accumulation_count,
                repeat_count=repeats,
                inputs=[],
                infeed_queue=queue,
                outfeed_queue=outfeed,
                device_mapping=spec.device_mapping,
                name="ipu_pipeline_estimator",
                **{**spec.pipeline_op_kwargs, **options},
            )

        with placement.on_device(self._config.ipu_run_config.ordinal):
            return compiler.compile(run)

    def _build_train(self, queue: IPUInfeedQueue) -> Built:
        spec, losses = self._spec(ModeKeys.TRAIN), IPUOutfeedQueue()
        ran = self._pipeline(
            spec,
            queue,
            losses,
            optimizer_function=spec.optimizer_function,
            reduction_method=spec.reduction_method,
            outfeed_loss=True,
            accumulate_outfeed=True,
            accumulate_outfeed_dtype=spec.loss_accumulator_dtype,
        )
        with tf.control_dependencies([ran]):
            sums = tf.cast(losses.dequeue(), tf.float32)
            loss = tf.reduce_mean(sums) / float(spec.gradient_accumulation_count or 1)
        return Built(loss, loss, hooks_of(spec, ModeKeys.TRAIN))

    def _build_evaluate(self, queue: IPUInfeedQueue) -> Built:
        spec, outfeed = self._spec(ModeKeys.EVAL), IPUOutfeedQueue()
        ran = self._pipeline(spec, queue, outfeed)
        with tf.control_dependencies([ran]):
            received = outfeed.dequeue()
        if isinstance(received, dict):
            metrics = spec.eval_metrics_fn(**received)
        else:
            metrics = spec.eval_metrics_fn(*(received if isinstance(received, (list, tuple)) else [received]))
        if not isinstance(metrics, dict) or "loss" not in metrics:
            raise ValueError("eval_metrics_fn must return a dict with the key 'loss'.")
        updates = {name: value[1] if isinstance(value, tuple) else value for name, value in metrics.items()}
        summed = {name: value[0] for name, value in metrics.items() if isinstance(value, tuple)}
        loss = tf.reduce_mean(tf.cast(updates["loss"], tf.float32))
        if "loss" not in summed:
            # The mean over all loops.
            del updates["loss"]
        return Built(updates, loss, hooks_of(spec, ModeKeys.EVAL), summed=summed)

    def _build_predict(self, queue: IPUInfeedQueue) -> Built:
        spec, outfeed = self._spec(ModeKeys.PREDICT), IPUOutfeedQueue()
        ran = self._pipeline(spec, queue, outfeed)
        with tf.control_dependencies([ran]):
            received = outfeed.dequeue()
        if isinstance(received, (list, tuple)):
            if len(received) != 1:
                raise ValueError(
                    f"The last stage must return a dict or one tensor in mode PREDICT. Received: {len(received)}."
                )
            received = received[0]
        return Built(ran, received, hooks_of(spec, ModeKeys.PREDICT))
