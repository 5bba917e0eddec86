"""What each stage takes for one micro-batch and for one weight update."""

import attrs

from openipu.model import constants as c
from openipu.model import kernels, system
from openipu.model.captured import Captured
from openipu.model.estimate import Category, Pass, Stage
from openipu.model.machine import Machine
from openipu.model.memory import Placed, StageMemory
from openipu.program import Plan, stash_depth


@attrs.frozen
class StageTime:
    """One stage in seconds.

    Attributes:
      forward, backward, update: of its kernels; recomputation is part of the backward pass.
      exchange: the part of forward and backward in which tiles exchange data.
      copies_in, copies_back: from other stages, in the forward and in the backward pass.
      streamed: to and from streaming memory for one micro-batch.
      streamed_update: the same for one update.
    """

    forward: float
    backward: float
    update: float
    exchange: float
    copies_in: float
    copies_back: float
    streamed: float
    streamed_update: float


def stage_time(captured: Captured, machine: Machine, plan: Plan, stage: int, memory: StageMemory) -> StageTime:
    """How long one stage takes."""
    clock = machine.target.clock_hz / c.HARDWARE_FACTOR
    sums = {phase: 0.0 for phase in Pass}
    exchange = 0.0
    for node in (*memory.life.order, *memory.update.order):
        cycles = node.cycles * node.count
        sums[node.phase] += cycles
        if node.phase is not Pass.UPDATE:
            exchange += node.exchange * node.count
        if id(node) in memory.life.recomputed:
            sums[Pass.BACKWARD] += cycles
            exchange += node.exchange * node.count
    sums[Pass.BACKWARD] += _accumulation(machine, memory)
    ahead, back = _received(captured, machine, plan, stage)
    streamed, streamed_update = _streamed(memory, machine, plan)
    return StageTime(
        forward=sums[Pass.FORWARD] / clock,
        backward=sums[Pass.BACKWARD] / clock,
        update=sums[Pass.UPDATE] / clock,
        exchange=exchange / clock,
        copies_in=system.stage_copy(ahead),
        copies_back=system.stage_copy(back),
        streamed=streamed,
        streamed_update=streamed_update,
    )


def _accumulation(machine: Machine, memory: StageMemory) -> float:
    """Cycles of adding one micro-batch's gradients to the accumulators."""
    found = [one for one in memory.placed if one.category is Category.ACCUMULATORS]
    # An addition of two arrays in place; the size tells float32 from float16 no more than its bytes do.
    return sum(kernels.elementwise(machine.tiles, one.bytes / 4, False, 1.0, 1, 2) for one in found)


def _received(captured: Captured, machine: Machine, plan: Plan, stage: int) -> tuple[int, int]:
    """Bytes that a stage gets from stages on other IPUs, in its forward and in its backward pass."""
    if plan.pipeline is None:
        return 0, 0
    values = captured.flat.values
    makers = {v: node for node in captured.kernels for v in node.writes}
    sums = {Pass.FORWARD: 0, Pass.BACKWARD: 0}
    seen: set[int] = set()
    for node in captured.kernels:
        if node.stage != stage:
            continue
        for v in node.reads:
            if v in makers and v not in seen and machine.mapping[makers[v].stage] != machine.mapping[stage]:
                seen.add(v)
                sums[node.phase] += values[v].bytes
    return sums[Pass.FORWARD], sums[Pass.BACKWARD]


def _streamed(memory: StageMemory, machine: Machine, plan: Plan) -> tuple[float, float]:
    """Seconds of traffic with streaming memory, for one micro-batch and for one update."""
    options = machine.options

    def size(category: Category) -> int:
        return sum(one.bytes for one in memory.placed if one.category is category)

    shards = plan.all_replicas if options.shard_optimizer_state else 1
    weight_shards = plan.all_replicas if options.shard_weights else 1
    each = update = 0.0
    if options.offload_weights:
        each += system.streaming(2 * size(Category.WEIGHTS) / weight_shards)
    if options.offload_accumulators:
        each += system.streaming(2 * size(Category.ACCUMULATORS))
    if options.offload_activations:
        stash = [one for one in memory.placed if one.category is Category.STASH]
        each += system.streaming(2 * _one_micro_batch(stash, plan))
    if options.offload_optimizer_state:
        update += system.streaming(2 * size(Category.OPTIMIZER_STATE) / shards)
    return each, update


def _one_micro_batch(stash: list[Placed], plan: Plan) -> float:
    """Bytes of a stash that one micro-batch puts in and takes out."""
    if plan.pipeline is None or not stash:
        return 0.0
    depth = stash_depth(plan.pipeline.schedule, plan.pipeline.stages, stash[0].stage)
    return sum(one.bytes for one in stash) / depth if depth else 0.0


def stage_of(index: int, captured: Captured, machine: Machine, memory: StageMemory, time: StageTime) -> Stage:
    """A stage as the estimate shows it."""
    layers = dict.fromkeys(node.layer for node in memory.life.order if node.layer)
    flops = sum(node.flops * node.count for node in memory.life.order)
    return Stage(
        index=index,
        ipu=machine.mapping[index],
        layers=tuple(layers),
        forward=time.forward,
        backward=time.backward,
        update=time.update,
        copies=time.copies_in + time.copies_back,
        flops=flops,
    )
