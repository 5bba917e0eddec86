"""What callbacks are told: the metrics of an execution, from its last step and its replicas."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from openipu import instances
from openipu.program import OutputMode, Plan
from openipu.runtime import Results
from openipu.tensorflow.keras.model_programs import CompiledModel, overridden
from openipu.tensorflow.keras.options import ReplicatedMetricReductionMethod as Method


def is_stepwise(model: Any, mode: str, compiled: CompiledModel) -> bool:
    """Whether callbacks hear of every step and replica: asynchronous callbacks, unless the outfeed is accumulated."""
    every = compiled.plan.outputs is OutputMode.ALL
    return mode != "predict" and every and not model._ipu.options.accumulate_outfeed


def of_execution(model: Any, compiled: CompiledModel, results: Results) -> dict[str, Any]:
    """The logs of one execution.

    They are those of the last step, where metrics are means over the epoch so far; with `accumulate_outfeed`, what
    the user's own step says of one batch is the mean over the steps of the last update. Of several replicas the last
    one counts, unless the model was told to reduce them.
    """
    plan = compiled.plan
    values = _values(compiled, results)
    if compiled.names is None and plan.outputs is OutputMode.ALL:
        window = plan.gradient_accumulation if plan.gradient_accumulation > 1 else plan.device_iterations
        window = window if model._ipu.options.accumulate_outfeed else 1
        of_one_batch = _not_metrics(model, values) if window > 1 else set()
        values = {name: v[-window:].mean(0) if name in of_one_batch else v[-1] for name, v in values.items()}
    replicas, method = plan.all_replicas, _method(model, plan)
    return {name: _scalar(_over_replicas(value, replicas, method)) for name, value in values.items()}


def of_steps(model: Any, compiled: CompiledModel, results: Results) -> Iterator[tuple[int, dict[str, Any]]]:
    """(step, logs) of every step and every replica of an execution; a step comes once for each replica."""
    plan = compiled.plan
    values = _values(compiled, results)
    for step in range(plan.device_iterations):
        for replica in range(plan.all_replicas):
            now = {name: plan.everyone.of(value, step, replica) for name, value in values.items()}
            yield step, {name: _scalar(value) for name, value in now.items()}


def predictions(model: Any, compiled: CompiledModel, results: Results) -> list[np.ndarray]:
    """The predictions of one execution as [examples, ...], in the order of the data of this instance."""
    plan = compiled.plan
    method = _method(model, plan)
    outputs = [np.asarray(o) for o in results.outputs]
    if plan.instances > 1 and method is not Method.NONE:
        start = instances.position() * plan.replicas
        everyone = [_reduced(_everyones(o, plan), plan.all_replicas, method) for o in outputs]
        outputs = [o[:, start : start + plan.replicas] for o in everyone]
    else:
        outputs = [_reduced(o, plan.replicas, method) for o in outputs]
    return [plan.layout.rows(o) for o in outputs]


def _values(compiled: CompiledModel, results: Results) -> dict[str, np.ndarray]:
    """What the replicas of all instances say."""
    if compiled.names is not None:
        values = dict(zip(compiled.names, results.finished, strict=True))
    else:
        outputs = results.outputs
        if compiled.plan.instances > 1:
            outputs = [_everyones(np.asarray(o), compiled.plan) for o in outputs]
        values = tf.nest.pack_sequence_as(compiled.structure, outputs)
    return {name: np.asarray(value) for name, value in values.items()}


def _everyones(value: np.ndarray, plan: Plan) -> np.ndarray:
    """The outputs of the replicas of all instances, in their order, from those of this one."""
    axis = 0 if plan.outputs is OutputMode.FINAL else 1
    return np.concatenate(list(instances.gather(value, "logs")), axis)


def _not_metrics(model: Any, names: Iterable[str]) -> set[str]:
    """The logs that are no metric's result: only steps that the user wrote have them."""
    if not (overridden(model, "test_step") or overridden(model, "compute_metrics")):
        return set()
    return set(names) - {metric.name for metric in model.metrics}


def _method(model: Any, plan: Plan) -> Method:
    return Method.NONE if plan.pipeline is not None else model._ipu.options.metric_reduction


def _reduced(output: np.ndarray, replicas: int, method: Method) -> np.ndarray:
    """Predictions [steps, replicas, ...] as the metric reduction of the model leaves them."""
    if replicas == 1 or method is Method.NONE:
        return output
    if method is Method.LIST:
        gathered = np.repeat(output[:, None], replicas, axis=1)
        return gathered.reshape(-1, *output.shape[1:])
    reduced = output.sum(1, keepdims=True) if method is Method.SUM else output.mean(1, keepdims=True)
    return np.broadcast_to(reduced.astype(output.dtype), output.shape)


def _over_replicas(value: np.ndarray, replicas: int, method: Method) -> np.ndarray:
    if replicas == 1 or method is Method.LIST:
        return value
    if method is Method.NONE:
        return value[-1]
    return value.sum(0) if method is Method.SUM else value.mean(0)


def _scalar(value: np.ndarray) -> Any:
    return float(value) if value.ndim == 0 else value
