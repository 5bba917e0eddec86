"""The entry point of the model: a program, a plan and a kind of IPU become an estimate."""

from collections.abc import Iterator, Sequence

import attrs

from openipu.hardware.target import Target
from openipu.model import constants as c
from openipu.model import system
from openipu.model.captured import Captured, Traced, capture, trace
from openipu.model.estimate import Category, Estimate, IpuMemory, Operation, Shares
from openipu.model.machine import Machine
from openipu.model.memory import StageMemory, code_bytes, ipu_memory, stage_memory
from openipu.model.nodes import Node, named
from openipu.model.options import Options, Recompute
from openipu.model.passes import StageTime, stage_of, stage_time
from openipu.program import Kind, OutputMode, Plan, Program, Timeline, timeline
from openipu.program.timing import Durations, Span, spans

# A longer pipeline repeats its middle: that many micro-batches show all there is to see.
_SHOWN = 48


def estimate(
    program: Program,
    plan: Plan,
    target: Target,
    options: Options = Options(),  # noqa: B008  (frozen)
    traced: Traced | None = None,
) -> Estimate:
    """What a real IPU would need for a program.

    Args:
      program: what one step does.
      plan: how it is spread.
      target: the kind of IPU.
      options: what else was asked of it.
      traced: the program, if it was traced already (see `openipu.model.trace`); None traces it. Options, targets and
        numbers of replicas, of accumulated steps and of steps in an execution may differ from those it was traced for.
    """
    if plan.pipeline is not None and plan.pipeline.recompute and options.recompute is Recompute.NONE:
        options = attrs.evolve(options, recompute=Recompute.STAGE)
    machine = _machine(program, plan, target, options)
    captured = capture(traced or trace(program, plan), machine)
    named([*captured.kernels, *captured.update_kernels])
    count = max(1, machine.stages)
    memories = [stage_memory(captured, machine, plan, stage) for stage in range(count)]
    times = [stage_time(captured, machine, plan, stage, memories[stage]) for stage in range(count)]
    ipus = max(machine.mapping) + 1
    shown, placed, shares = _shares(captured, machine, plan, times)
    memory = tuple(
        ipu_memory(ipu, [m for i, m in enumerate(memories) if machine.mapping[i] == ipu], captured, machine, plan)
        for ipu in range(ipus)
    )
    return Estimate(
        program=program.name,
        target=target,
        plan=plan,
        options=options,
        micro_batch=_micro_batch(program),
        stages=tuple(stage_of(i, captured, machine, memories[i], times[i]) for i in range(count)),
        operations=_operations(captured, machine, memories),
        memory=memory,
        shares=shares,
        timeline=shown,
        spans=placed,
        warnings=(*_warnings(captured, plan), *_code(memory, target)),
        constants=tuple(c.CONSTANTS),
        fed=sum(captured.flat.values[v].bytes for v in captured.batch),
        returned=sum(captured.flat.values[v].bytes for v in captured.results),
    )


def _machine(program: Program, plan: Plan, target: Target, options: Options) -> Machine:
    pipeline = plan.pipeline
    stages = pipeline.stages if pipeline is not None else 0
    mapping = pipeline.device_mapping or tuple(range(stages)) if pipeline is not None else (0,)
    return Machine(target, options, stages, mapping, program.update is not None, plan.all_replicas)


def _micro_batch(program: Program) -> int | None:
    sizes = {slot.shape[0] for slot in program.batch if slot.shape}
    return program.batch[0].shape[0] if sizes and program.batch[0].shape else None


def _operations(captured: Captured, machine: Machine, memories: Sequence[StageMemory]) -> tuple[Operation, ...]:
    again = frozenset().union(*(memory.life.recomputed for memory in memories))
    seen: set[tuple] = set()
    made = []
    for node in (*captured.kernels, *captured.update_kernels):
        key = (machine.mapping[node.stage], node.kind, *node.key)
        made.append(_operation(node, key in seen, id(node) in again, machine))
        seen.add(key)
    return tuple(made)


def _operation(node: Node, shared: bool, again: bool, machine: Machine) -> Operation:
    return Operation(
        name=node.name,
        layer=node.layer,
        kind=node.kind,
        stage=node.stage,
        phase=node.phase,
        count=node.count,
        flops=node.flops,
        bytes=node.bytes,
        shape=node.shape,
        dtype=node.dtype,
        cycles=node.cycles * c.HARDWARE_FACTOR,
        exchange_cycles=node.exchange * c.HARDWARE_FACTOR,
        temporary_bytes=node.temporary,
        code_bytes=0 if shared else code_bytes(node, machine.target.tiles),
        recomputed=again,
    )


def _shares(
    captured: Captured, machine: Machine, plan: Plan, times: Sequence[StageTime]
) -> tuple[Timeline | None, tuple[Span, ...], Shares]:
    """The pipeline, if there is one, and where the seconds of one step go."""
    training = machine.training
    count = plan.gradient_accumulation if training else plan.device_iterations
    busy = [0.0] * (max(machine.mapping) + 1)
    for stage, time in enumerate(times):
        busy[machine.mapping[stage]] += _busy(time)
    critical = max(range(len(busy)), key=busy.__getitem__)
    mine = [time for stage, time in enumerate(times) if machine.mapping[stage] == critical]
    exchange = sum(time.exchange for time in mine)
    copies = sum(time.copies_in + time.copies_back for time in mine)
    streamed = sum(time.streamed for time in mine)
    compute = sum(time.forward + time.backward for time in mine) - exchange
    shown, placed, length = None, (), busy[critical] * count
    if plan.pipeline is not None:
        shown, placed, length = _pipelined(machine, plan, times, count)
    updates = max(time.update for time in times) if training else 0.0
    gradients = [captured.flat.values[v].bytes for v in captured.gradients if v is not None]
    between = system.replica_exchange(gradients, plan.all_replicas, machine.options) if training else 0.0
    streamed += max(time.streamed_update for time in times) / count
    device = length / count + (updates + between) / count + max(time.streamed_update for time in times) / count
    start = system.launch(machine.options) / plan.device_iterations
    return shown, placed, Shares(
        compute=compute,
        exchange=exchange,
        stage_copies=copies,
        bubble=max(0.0, length / count - busy[critical]),
        replica_exchange=between / count,
        update=updates / count,
        streaming=streamed,
        host=_host(captured, machine, plan, device),
        launch=start,
    )  # fmt: skip


def _busy(time: StageTime) -> float:
    return time.forward + time.backward + time.copies_in + time.copies_back + time.streamed


def _host(captured: Captured, machine: Machine, plan: Plan, device: float) -> float:
    """Seconds of transfers with the host that nothing hides."""
    values = captured.flat.values
    fed = sum(values[v].bytes for v in captured.batch)
    returned = sum(values[v].bytes for v in captured.results)
    if plan.outputs is OutputMode.FINAL:
        returned /= plan.device_iterations
    seconds = system.host(fed, returned, plan.replicas, machine.target, machine.options)
    return max(0.0, seconds - device) if machine.options.overlap_host else seconds


def _pipelined(
    machine: Machine, plan: Plan, times: Sequence[StageTime], count: int
) -> tuple[Timeline, tuple[Span, ...], float]:
    """The timeline of one update, its work in seconds, and the length of its passes."""
    pipeline = plan.pipeline
    assert pipeline is not None
    durations: dict[tuple[int, Kind], float] = {}
    for stage, time in enumerate(times):
        durations[stage, Kind.FORWARD] = time.forward + time.copies_in + time.streamed / 2
        durations[stage, Kind.BACKWARD] = time.backward + time.copies_back + time.streamed / 2
        durations[stage, Kind.UPDATE] = time.update + time.streamed_update

    def made(number: int) -> Timeline:
        return timeline(pipeline.schedule, pipeline.stages, number, machine.training, machine.mapping)

    shown = made(min(count, _SHOWN))
    placed = spans(shown, durations)
    length = _length(placed)
    if count > _SHOWN:
        # Once all stages are busy, every further micro-batch takes as long as the one before.
        length += (count - _SHOWN) * (length - _length(spans(made(_SHOWN // 2), durations))) / (_SHOWN - _SHOWN // 2)
    return shown, placed, length


def _length(placed: Sequence[Span]) -> float:
    return max((span.end for span in placed if span.work.kind is not Kind.UPDATE), default=0.0)


def _warnings(captured: Captured, plan: Plan) -> tuple[str, ...]:
    found = []
    loops = captured.flat.unknown_loops
    if loops:
        found.append(
            f"{loops} loop{'s' if loops > 1 else ''} run as often as their data say; every one is counted as one pass."
        )
    if plan.pipeline is not None and max(captured.homes, default=0) == 0 and plan.pipeline.stages > 1:
        found.append("No operation is marked with a stage: all are counted for the first one.")
    if plan.all_replicas > 16:
        found.append("Over more than 16 replicas the predicted exchange between them is too fast by up to 30 %.")
    return tuple(found)


def _code(memory: Sequence[IpuMemory], target: Target) -> Iterator[str]:
    """Only the lower part of a tile's memory can hold code; how much there is, is the roughest of all predictions."""
    for one in memory:
        size = (one.categories[Category.CODE] + one.categories[Category.EXCHANGE]) / target.tiles
        if size > target.executable_bytes_per_tile:
            yield (
                f"Code would take {size / 1024:,.0f} KiB of a tile of IPU {one.ipu}, which can hold "
                f"{target.executable_bytes_per_tile / 1024:,.0f} KiB of it: it may not fit though all memory together "
                "would do. Use more pipeline stages, or layers of fewer different shapes."
            )


def durations_of(made: Estimate) -> Durations:
    """What each kind of work takes on each stage, for timelines of other lengths."""
    found: dict[tuple[int, Kind], float] = {}
    for span in made.spans:
        found[span.work.stage, span.work.kind] = span.end - span.start
    return found
