"""One micro-batch of a pipeline: through all stages, to what is optimised and what is enqueued."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from openipu.tensorflow.capture import graph_attributes, placement

DtypeRule = tf.DType | str | Callable[[Any], Any] | None

# Operations of a stage, and their gradients, have this in their names.
STAGE = "openipu_stage_"


def forward(stages: Sequence[Any], mapping: Sequence[int], given: list[Any], named: dict[str, Any]) -> Any:
    """What the last stage returns for one micro-batch."""
    results: Any = None
    allowed = [*given, *(tensor for tensor, _ in _captures())]
    for number, (stage, ipu) in enumerate(zip(stages, mapping, strict=True)):
        shard = graph_attributes.scope(placement.SHARD_ATTRIBUTE, placement.format_shards((ipu,)))
        with shard, tf.name_scope(f"{STAGE}{number}"):
            if number:
                given, named = ([], results) if isinstance(results, dict) else (listed(results), {})
            if isinstance(stage, list | tuple):
                results = [value for one in stage for value in listed(one(*given, **named))]
            else:
                results = stage(*given, **named)
            # A stage without operations of its own still has its IPU.
            results = tf.nest.map_structure(_handed_on, results)
    _refuse_other_captures(allowed)
    return results


def _captures() -> list[tuple[Any, Any]]:
    """What the function that is being traced has taken from outside, with the tensor that stands for each."""
    return list(getattr(tf.compat.v1.get_default_graph(), "captures", ()))


def _refuse_other_captures(allowed: list[Any]) -> None:
    known = {id(tensor) for tensor in allowed}
    for tensor, _ in _captures():
        if tensor.dtype not in (tf.resource, tf.variant) and id(tensor) not in known:
            raise ValueError(
                f"Trying to capture the tensor {getattr(tensor, 'name', tensor)} which is not a resource. This tensor "
                "needs to be passed as either part of the `input` or `infeed_queue` of the pipeline."
            )


def _handed_on(result: Any) -> Any:
    return result if result is None or isinstance(result, tf.Operation) else tf.identity(result)


def described_by(optimizer_function: Callable, results: Any) -> Any:
    """What the optimizer function says of the results of the last stage."""
    described = optimizer_function(**results) if isinstance(results, dict) else optimizer_function(*listed(results))
    if not hasattr(described, "opt"):
        raise TypeError(
            "optimizer_function must return an OptimizerFunctionOutput. "
            f"Received: an object of type {type(described).__name__}."
        )
    return described


def sent_of(results: Any, described: Any, loss_only: bool, mask: Sequence[bool] | None) -> Any:
    """What a training pipeline enqueues for one micro-batch."""
    if loss_only:
        return described.loss
    values = listed(results)
    if mask is None:
        return values
    if len(mask) != len(values):
        raise ValueError(
            f"The last computational stage has {len(values)} outputs, but the `outfeed_mask` has elements {len(mask)} "
            "- these need to match in size."
        )
    return [value for value, hidden in zip(values, mask, strict=True) if not hidden]


def listed(results: Any) -> list[Any]:
    """The tensors that a stage returns; operations need not be handed on, they run anyway."""
    if results is None or isinstance(results, tf.Operation):
        return []
    if isinstance(results, dict):
        return list(results.values())
    values = list(results) if isinstance(results, list | tuple) else [results]
    return [value for value in values if value is not None and not isinstance(value, tf.Operation)]


def accumulator_dtype(rule: DtypeRule, of: Any) -> tf.DType:
    """The dtype of a sum: None is that of what is added, else a dtype or a function of it."""
    if rule is None:
        return tf.as_dtype(of.dtype).base_dtype
    if isinstance(rule, tf.DType | str) or not callable(rule):
        return tf.as_dtype(rule)
    return tf.as_dtype(rule(of))
