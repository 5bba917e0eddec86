"""`pipelining_ops.pipeline`: stages over micro-batches, one weight update for all of them, as loops of one program.

All micro-batches of an update see the same weights, so one after another they compute what overlapping stages would.
"""

import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from openipu.tensorflow.feeds import loops
from openipu.tensorflow.feeds.infeed import IPUInfeedQueue
from openipu.tensorflow.feeds.outfeed import IPUOutfeedQueue
from openipu.tensorflow.ops.gradient_reduction import GradientAccumulationReductionMethod as Method
from openipu.tensorflow.pipelines import checks, overlap
from openipu.tensorflow.pipelines.accumulators import LoopAccumulators
from openipu.tensorflow.pipelines.gradients import captured_gradients, gradients_of, takes_captured
from openipu.tensorflow.pipelines.micro_batch import (
    DtypeRule,
    accumulator_dtype,
    described_by,
    forward,
    listed,
    sent_of,
)
from openipu.tensorflow.pipelines.options import PipelineSchedule, PipelineStageOptions, RecomputationMode

log = logging.getLogger("openipu.tensorflow")

_numbers = itertools.count()


def pipeline(
    computational_stages: Sequence[Callable | Sequence[Callable]],
    gradient_accumulation_count: int | None = None,
    gradient_accumulation_dtype: DtypeRule = None,
    gradient_accumulation_for_captured_grads: bool = True,
    repeat_count: int = 1,
    batch_serialization_iterations: int = 1,
    inputs: Sequence[Any] | None = None,
    infeed_queue: IPUInfeedQueue | None = None,
    outfeed_queue: IPUOutfeedQueue | None = None,
    optimizer_function: Callable | None = None,
    device_mapping: Sequence[int] | None = None,
    pipeline_schedule: PipelineSchedule | None = None,
    recomputation_mode: RecomputationMode | None = None,
    forward_propagation_stages_poplar_options: Sequence[PipelineStageOptions] | None = None,
    backward_propagation_stages_poplar_options: Sequence[PipelineStageOptions] | None = None,
    weight_update_poplar_options: PipelineStageOptions | None = None,
    offload_weight_update_variables: bool | None = None,
    replicated_optimizer_state_sharding: bool = False,
    offload_activations: bool | None = None,
    offload_gradient_accumulation_buffers: bool | None = None,
    replicated_weight_sharding: bool | None = None,
    offload_weights: bool | None = None,
    continuous_weight_updates: bool = False,
    outfeed_loss: bool = False,
    accumulate_outfeed: bool = False,
    accumulate_outfeed_dtype: DtypeRule = None,
    outfeed_mask: Sequence[bool] | None = None,
    reduction_method: Any = Method.SUM,
    name: str | None = None,
) -> tf.Operation:
    """Run stages over micro-batches, and update the weights after each group of them.

    Args:
      computational_stages: functions; the first takes `inputs` and an element of the infeed, each later one what the
        one before it returns. A list of functions in place of one: all take the same, their results are put together.
      gradient_accumulation_count: micro-batches of one update, for each replica.
      gradient_accumulation_dtype: of the accumulators: None for the variable's, a dtype, or a function of the variable.
      repeat_count: how many such groups.
      batch_serialization_iterations: makes every micro-batch so many.
      inputs: tensors that are the same for all micro-batches.
      infeed_queue, outfeed_queue: where elements come from and results go.
      optimizer_function: takes what the last stage returns, returns an `OptimizerFunctionOutput`; makes it a training.
      device_mapping: the IPU of each stage.
      pipeline_schedule, recomputation_mode: checked; the numbers are the same with all.
      outfeed_loss: enqueue only the loss.
      accumulate_outfeed: enqueue the sum over the micro-batches of one update, of `accumulate_outfeed_dtype`.
      outfeed_mask: which of the last stage's results are not enqueued.
      reduction_method: how the gradients of the micro-batches become one.
      name: of the operations.
      continuous_weight_updates: refused.
      gradient_accumulation_for_captured_grads: captured gradients become one as the others do; else those of each
        micro-batch are enqueued.
      forward_propagation_stages_poplar_options, backward_propagation_stages_poplar_options,
        weight_update_poplar_options, offload_weight_update_variables, replicated_optimizer_state_sharding,
        offload_activations, offload_gradient_accumulation_buffers, replicated_weight_sharding, offload_weights:
        checked, and otherwise ignored.
    """
    given = dict(locals())
    checks.check_arguments(given)
    serialised = batch_serialization_iterations > 1
    default = PipelineSchedule.Sequential if serialised else PipelineSchedule.Grouped
    mapping = checks.mapping_of(given, default if pipeline_schedule is None else pipeline_schedule)
    if overlap.recorded(given, mapping):
        return tf.no_op()
    if optimizer_function is None and replicated_optimizer_state_sharding:
        log.warning("replicated_optimizer_state_sharding will have no effect since this pipeline is in inference.")
    count = given["gradient_accumulation_count"] * batch_serialization_iterations
    constants = [_by_value(value) for value in inputs or ()]
    number = next(_numbers)
    gradients = LoopAccumulators(f"gradient_{number}", count, Method.parse(reduction_method))
    captured = LoopAccumulators(f"captured_{number}", count, Method.parse(reduction_method))
    outputs = LoopAccumulators(f"outfeed_{number}", count)
    update: dict[str, Any] = {}

    def enqueue(values: Any) -> None:
        if outfeed_queue is not None and tf.nest.flatten(values):
            outfeed_queue.enqueue(values)

    def micro_batch(iteration: tf.Tensor) -> tf.Tensor:
        element, named = loops.element_of(infeed_queue)
        # The tape only tells which variables the stages use.
        with tf.GradientTape() as tape:
            results = forward(computational_stages, mapping, [*constants, *element], named)
        token = iteration
        sent = results
        if optimizer_function is not None:
            described = described_by(optimizer_function, results)
            pairs = gradients_of(described, tape.watched_variables())
            variables = [variable for _, variable in pairs]
            dtypes = [accumulator_dtype(gradient_accumulation_dtype, variable) for variable in variables]
            update.update(described=described, variables=variables, kinds=[g.dtype for g, _ in pairs])
            token = gradients.add(token, [g for g, _ in pairs], dtypes)
            seen = captured_gradients(described)
            if seen and gradient_accumulation_for_captured_grads:
                update["seen"] = seen
                flat = tf.nest.flatten(seen)
                token = captured.add(token, flat, [value.dtype for value in flat])
            elif seen and described.captured_gradient_outfeed is not None:
                described.captured_gradient_outfeed.enqueue(seen)
            sent = sent_of(results, described, outfeed_loss, outfeed_mask)
        if outfeed_queue is None and listed(sent):
            raise ValueError(
                f"The last computational stage has tensor outputs: {listed(results)}, but no outfeed_queue has been "
                "provided."
            )
        if accumulate_outfeed:
            flat = tf.nest.flatten(sent)
            update["sent"] = sent
            token = outputs.add(token, flat, [accumulator_dtype(accumulate_outfeed_dtype, value) for value in flat])
        else:
            enqueue(sent)
        return token + 1

    def execution() -> None:
        with tf.name_scope(name or "pipeline"):
            done = loops.repeat(count, micro_batch, [tf.constant(0)])
            if optimizer_function is not None:
                sums = gradients.take(done)
                described = update["described"]
                applied = [tf.cast(s, kind) for s, kind in zip(sums, update["kinds"], strict=True)]
                named = dict(described.apply_gradients_kwargs)
                if "seen" in update:
                    totals = tf.nest.pack_sequence_as(update["seen"], captured.take(done))
                    if described.captured_gradient_outfeed is not None:
                        described.captured_gradient_outfeed.enqueue(totals)
                    if takes_captured(described.opt):
                        named["captured_grads"] = totals
                pairs = list(zip(applied, update["variables"], strict=True))
                described.opt.apply_gradients(pairs, *described.apply_gradients_args, **named)
            if accumulate_outfeed:
                enqueue(tf.nest.pack_sequence_as(update["sent"], outputs.take(done)))

    return loops.repeat(repeat_count, execution, [])


def _by_value(value: Any) -> tf.Tensor:
    if isinstance(value, tf.Variable):
        log.warning("Passing tensor %s by value.", value.name)
    return tf.convert_to_tensor(value)
