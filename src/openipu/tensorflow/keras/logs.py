"""What callbacks are told: the metrics of an execution, from its last step and its replicas."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from openipu.program import OutputMode, Plan
from openipu.runtime import Results
from openipu.tensorflow.keras.model_programs import Compiled
from openipu.tensorflow.keras.options import ReplicatedMetricReductionMethod as Method


def is_stepwise(model: Any, mode: str, compiled: Compiled) -> bool:
    """Whether callbacks hear of every step and replica: asynchronous callbacks, unless the outfeed is accumulated."""
    every = compiled.engine.executable.plan.outputs is OutputMode.ALL
    return mode != "predict" and every and not model._ipu.options.accumulate_outfeed


def of_execution(model: Any, compiled: Compiled, results: Results) -> dict[str, Any]:
    """The logs of one execution.

    They are those of the last step; with `accumulate_outfeed` the mean over the steps of the last update. Of several
    replicas the last one counts, unless the model was told to reduce them.
    """
    plan = compiled.engine.executable.plan
    values = _values(compiled, results)
    if compiled.names is None and plan.outputs is OutputMode.ALL:
        window = plan.gradient_accumulation if plan.gradient_accumulation > 1 else plan.device_iterations
        window = window if model._ipu.options.accumulate_outfeed else 1
        values = {name: value[-window:].mean(0) for name, value in values.items()}
    method = _method(model, plan)
    return {name: _scalar(_over_replicas(value, plan.replicas, method)) for name, value in values.items()}


def of_steps(model: Any, compiled: Compiled, results: Results) -> Iterator[tuple[int, dict[str, Any]]]:
    """(step, logs) of every step and every replica of an execution; a step comes once for each replica."""
    plan = compiled.engine.executable.plan
    values = _values(compiled, results)
    for step in range(plan.device_iterations):
        for replica in range(plan.replicas):
            now = {name: value[step] if plan.replicas == 1 else value[step, replica] for name, value in values.items()}
            yield step, {name: _scalar(value) for name, value in now.items()}


def predictions(model: Any, compiled: Compiled, results: Results) -> list[np.ndarray]:
    """The predictions of one execution as [examples, ...], in the order of the data."""
    plan = compiled.engine.executable.plan
    method = _method(model, plan)
    outputs = [_reduced(np.asarray(o), plan.replicas, method) for o in results.outputs]
    lead = 2 if plan.replicas == 1 else 3
    return [o.reshape(-1, *o.shape[lead:]) for o in outputs]


def _values(compiled: Compiled, results: Results) -> dict[str, np.ndarray]:
    if compiled.names is not None:
        values = dict(zip(compiled.names, results.finished, strict=True))
    else:
        values = tf.nest.pack_sequence_as(compiled.structure, results.outputs)
    return {name: np.asarray(value) for name, value in values.items()}


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
    return float(value) if np.ndim(value) == 0 else value
