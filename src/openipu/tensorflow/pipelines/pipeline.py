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
    return loops.repeat(repeat_count, _Group(given, mapping).run, [])


class _Group:
    """The micro-batches of one group and, in a training, the weight update after them.

    Args:
      given: the arguments of `pipeline`.
      mapping: the IPU of each stage.
    """

    def __init__(self, given: dict[str, Any], mapping: Sequence[int]) -> None:
        self._given = given
        self._mapping = mapping
        self._constants = [_by_value(value) for value in given["inputs"] or ()]
        self._count = given["gradient_accumulation_count"] * given["batch_serialization_iterations"]
        number, method = next(_numbers), Method.parse(given["reduction_method"])
        self._gradients = LoopAccumulators(f"gradient_{number}", self._count, method)
        self._captured = LoopAccumulators(f"captured_{number}", self._count, method)
        self._outputs = LoopAccumulators(f"outfeed_{number}", self._count)
        # What the update needs to know of the micro-batches, which are traced before it.
        self._traced: dict[str, Any] = {}

    def run(self) -> None:
        """One execution of the pipeline."""
        with tf.name_scope(self._given["name"] or "pipeline"):
            done = loops.repeat(self._count, self._micro_batch, [tf.constant(0)])
            if self._given["optimizer_function"] is not None:
                self._update(done)
            if self._given["accumulate_outfeed"]:
                self._enqueue(tf.nest.pack_sequence_as(self._traced["sent"], self._outputs.take(done)))

    def _micro_batch(self, iteration: tf.Tensor) -> tf.Tensor:
        given = self._given
        element, named = loops.element_of(given["infeed_queue"])
        # The tape only tells which variables the stages use.
        with tf.GradientTape() as tape:
            results = forward(given["computational_stages"], self._mapping, [*self._constants, *element], named)
        token, sent = iteration, results
        if given["optimizer_function"] is not None:
            described = described_by(given["optimizer_function"], results)
            token = self._accumulate(token, described, tape.watched_variables())
            sent = sent_of(results, described, given["outfeed_loss"], given["outfeed_mask"])
        if given["outfeed_queue"] is None and listed(sent):
            raise ValueError(
                f"The last computational stage has tensor outputs: {listed(results)}, but no outfeed_queue has been "
                "provided."
            )
        if given["accumulate_outfeed"]:
            flat = tf.nest.flatten(sent)
            self._traced["sent"] = sent
            dtypes = [accumulator_dtype(given["accumulate_outfeed_dtype"], value) for value in flat]
            token = self._outputs.add(token, flat, dtypes)
        else:
            self._enqueue(sent)
        return token + 1

    def _accumulate(self, token: tf.Tensor, described: Any, watched: Sequence[tf.Variable]) -> tf.Tensor:
        """Add up the gradients of a micro-batch, and those that are captured."""
        pairs = gradients_of(described, watched)
        variables = [variable for _, variable in pairs]
        dtypes = [accumulator_dtype(self._given["gradient_accumulation_dtype"], variable) for variable in variables]
        self._traced.update(described=described, variables=variables, kinds=[g.dtype for g, _ in pairs])
        token = self._gradients.add(token, [g for g, _ in pairs], dtypes)
        seen = captured_gradients(described)
        if seen and self._given["gradient_accumulation_for_captured_grads"]:
            self._traced["seen"] = seen
            flat = tf.nest.flatten(seen)
            token = self._captured.add(token, flat, [value.dtype for value in flat])
        elif seen and described.captured_gradient_outfeed is not None:
            described.captured_gradient_outfeed.enqueue(seen)
        return token

    def _update(self, done: Any) -> None:
        traced, described = self._traced, self._traced["described"]
        sums = self._gradients.take(done)
        applied = [tf.cast(s, kind) for s, kind in zip(sums, traced["kinds"], strict=True)]
        named = dict(described.apply_gradients_kwargs)
        if "seen" in traced:
            totals = tf.nest.pack_sequence_as(traced["seen"], self._captured.take(done))
            if described.captured_gradient_outfeed is not None:
                described.captured_gradient_outfeed.enqueue(totals)
            if takes_captured(described.opt):
                named["captured_grads"] = totals
        pairs = list(zip(applied, traced["variables"], strict=True))
        described.opt.apply_gradients(pairs, *described.apply_gradients_args, **named)

    def _enqueue(self, values: Any) -> None:
        queue = self._given["outfeed_queue"]
        if queue is not None and tf.nest.flatten(values):
            queue.enqueue(values)


def _by_value(value: Any) -> tf.Tensor:
    if isinstance(value, tf.Variable):
        log.warning("Passing tensor %s by value.", value.name)
    return tf.convert_to_tensor(value)
