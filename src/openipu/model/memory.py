"""Memory of each IPU of a replica: what is always there, what comes and goes, tile by tile and layer by layer."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import attrs
import numpy as np

from openipu.model import constants as c
from openipu.model.captured import Captured
from openipu.model.estimate import Category, Contributor, IpuMemory, LivePoint, Pass
from openipu.model.liveness import Lifetimes, lifetimes, scheduled
from openipu.model.machine import Machine
from openipu.model.nodes import Node
from openipu.model.options import Options, Recompute
from openipu.model.slot_layers import layer_of_slot
from openipu.program import Plan, stash_depth

_OFFLOADED = {
    Category.WEIGHTS: "offload_weights",
    Category.OPTIMIZER_STATE: "offload_optimizer_state",
    Category.ACCUMULATORS: "offload_accumulators",
    Category.STASH: "offload_activations",
}


@attrs.frozen(eq=False)
class Placed:
    """A value that is always on an IPU.

    Attributes:
      category, layer, bytes: what it is for, whose it is, how large it is.
      stage: where it is.
    """

    category: Category
    layer: str
    bytes: int
    stage: int


@attrs.frozen(eq=False)
class StageMemory:
    """What one stage keeps, and what comes and goes in it.

    Attributes:
      life: its temporaries.
      update: those of its weight update.
      placed: what is always there.
    """

    life: Lifetimes
    update: Lifetimes
    placed: tuple[Placed, ...]


def stage_memory(captured: Captured, machine: Machine, plan: Plan, stage: int) -> StageMemory:
    """The memory of one stage."""
    values = captured.flat.values
    own = [node for node in captured.kernels if node.stage == stage]
    forward = scheduled([node for node in own if node.phase is Pass.FORWARD])
    backward = scheduled([node for node in own if node.phase is Pass.BACKWARD])
    accumulated = plan.gradient_accumulation > 1
    resident = [values[v].root for v in (*captured.flat.inputs, *captured.flat.constants)]
    # What no kernel makes is a constant, or a view of one.
    made = {v for node in captured.kernels for v in node.writes}
    resident += [v for node in own for v in node.reads if v not in made]
    returned = [] if accumulated else [values[v].root for v in captured.gradients if v is not None]
    returned += [values[v].root for v in captured.results]
    life = lifetimes(forward, backward, values, resident, returned, machine.options.recompute)
    placed = [*_kept(captured, plan, stage), *_buffers(captured, machine, stage)]
    placed += _stash(captured, machine, plan, stage, life)
    return StageMemory(life, _update(captured, stage), tuple(placed))


def _update(captured: Captured, stage: int) -> Lifetimes:
    flat = captured.update_flat
    if flat is None:
        return lifetimes([], [], [], [], [], Recompute.NONE)
    order = scheduled([node for node in captured.update_kernels if node.stage == stage])
    resident = [flat.values[v].root for v in (*flat.inputs, *flat.constants)]
    made = {v for node in captured.update_kernels for v in node.writes}
    resident += [v for node in order for v in node.reads if v not in made]
    # New values replace the old ones in place.
    resident += [flat.values[v].root for v in flat.outputs if v is not None]
    return lifetimes(order, [], flat.values, resident, [], Recompute.NONE)


def _kept(captured: Captured, plan: Plan, stage: int) -> Iterable[Placed]:
    program, values = captured.program, captured.flat.values
    state = set(captured.state)
    trained = {values[v].shape for v in captured.gradients if v is not None}
    layers = frozenset(node.layer for node in captured.kernels)
    for i, slot in enumerate(program.shared):
        if captured.homes[i] != stage:
            continue
        category = Category.OPTIMIZER_STATE if i in state else Category.WEIGHTS
        if i in state and slot.shape not in trained and math.prod(slot.shape) > 1:
            category = Category.STATE
        yield Placed(category, layer_of_slot(slot.name, layers), _bytes(slot.shape, slot.dtype.itemsize), stage)
    if stage == 0:
        for slot in program.local:
            yield Placed(
                Category.STATE, layer_of_slot(slot.name, layers), _bytes(slot.shape, slot.dtype.itemsize), stage
            )
        for v in captured.flat.constants:
            yield Placed(Category.CONSTANTS, "", values[v].bytes, stage)
    if plan.gradient_accumulation > 1:
        makers = {v: node for node in captured.kernels for v in node.writes}
        types = program.accumulators or (None,) * len(captured.gradients)
        for v, dtype in zip(captured.gradients, types, strict=True):
            if v is None:
                continue
            node = makers.get(values[v].root)
            if (node.stage if node is not None else 0) == stage:
                item = np.dtype(dtype).itemsize if dtype is not None else values[v].item
                layer = node.layer if node is not None else ""
                yield Placed(Category.ACCUMULATORS, layer, values[v].size * item, stage)


def _buffers(captured: Captured, machine: Machine, stage: int) -> Iterable[Placed]:
    values = captured.flat.values
    used = {v for node in captured.kernels if node.stage == stage for v in node.reads}
    depth = 2 if machine.options.overlap_host else 1
    fed = sum(values[v].bytes for v in captured.batch if values[v].root in used)
    last = max(0, machine.stages - 1)
    returned = sum(values[v].bytes for v in captured.results) if stage == last else 0
    yield Placed(Category.INPUT_OUTPUT, "", (fed + returned) * depth, stage)


def _stash(captured: Captured, machine: Machine, plan: Plan, stage: int, life: Lifetimes) -> Iterable[Placed]:
    if plan.pipeline is None or not machine.training:
        return
    depth = stash_depth(plan.pipeline.schedule, plan.pipeline.stages, stage)
    makers = {v: node for node in captured.kernels for v in node.writes}
    values = captured.flat.values
    kept = list(life.stash)
    used_backward = {
        v for node in captured.kernels if node.stage == stage and node.phase is Pass.BACKWARD for v in node.reads
    }
    # Recomputing starts from a stage's inputs, so they wait too; so does fed data that a backward pass reads.
    if life.recomputed:
        inside = {v for node in life.order for v in node.writes}
        reads = {v for node in life.order if node.phase is Pass.FORWARD for v in node.reads}
        kept += [v for v in reads if v not in inside and v in makers]
        used_backward |= reads
    kept += [captured.flat.values[v].root for v in captured.batch if captured.flat.values[v].root in used_backward]
    for v in dict.fromkeys(kept):
        layer = makers[v].layer if v in makers else ""
        yield Placed(Category.STASH, layer, values[v].bytes * depth, stage)


def ipu_memory(ipu: int, stages: Sequence[StageMemory], captured: Captured, machine: Machine, plan: Plan) -> IpuMemory:
    """The memory of one IPU, with all stages that it runs."""
    target, options = machine.target, machine.options
    tiles = np.zeros(target.tiles)
    totals: dict[Category, int] = defaultdict(int)
    layers: dict[str, dict[Category, int]] = defaultdict(lambda: defaultdict(int))
    streaming = 0
    spread = _Spread(target.tiles)
    for one in (p for stage in stages for p in stage.placed):
        size = _on_chip(one, options, plan)
        # What is kept off the chip is in streaming memory, of which every replica has its share.
        if _offloaded(one.category, options):
            streaming += size
            continue
        spread.add(tiles, size)
        totals[one.category] += size
        layers[one.layer][one.category] += size
    kernels = _distinct(captured, stages)
    own = sum(code_bytes(node, target.tiles) for node in kernels)
    code = c.PROGRAM_BYTES * target.tiles + own * (1 - c.EXCHANGE_SHARE)
    exchange = own * c.EXCHANGE_SHARE
    tiles += (code + exchange) / target.tiles
    totals[Category.CODE], totals[Category.EXCHANGE] = int(code), int(exchange)
    for node in kernels:
        layers[node.layer][Category.CODE] += code_bytes(node, target.tiles)
    worst = max((life for stage in stages for life in (stage.life, stage.update)), key=_highest, default=None)
    temporaries = np.zeros(target.tiles)
    if worst is not None and len(worst.live):
        _at_peak(worst, captured, temporaries, layers, stages)
    totals[Category.TEMPORARIES] = int(temporaries.sum())
    always = sum(size for category, size in totals.items() if category is not Category.TEMPORARIES)
    wide = math.sqrt(c.PLAN_SPREAD)
    peak = totals[Category.TEMPORARIES]
    return IpuMemory(
        ipu=ipu,
        categories={category: totals.get(category, 0) for category in Category},
        always_live=tiles,
        temporaries=temporaries,
        liveness=_curve(stages),
        contributors=_largest(layers),
        streaming=streaming,
        limit=target.bytes_per_tile,
        low=int(always + peak / wide),
        high=int(always + peak * wide),
    )


def _highest(life: Lifetimes) -> float:
    return float(life.live.max()) if len(life.live) else -1.0


def _on_chip(one: Placed, options: Options, plan: Plan) -> int:
    """Bytes of a value on one replica."""
    sharded = {
        Category.OPTIMIZER_STATE: getattr(options, "shard_optimizer_state", False),
        Category.WEIGHTS: getattr(options, "shard_weights", False),
    }
    return math.ceil(one.bytes / plan.all_replicas) if sharded.get(one.category) else one.bytes


def _offloaded(category: Category, options: Options) -> bool:
    return category in _OFFLOADED and getattr(options, _OFFLOADED[category])


def code_bytes(node: Node, tiles: int) -> int:
    """Code and vertex state of a kernel: most of it is on the tiles that have a part of its data."""
    used = min(tiles, max(1, math.ceil(node.bytes / c.TILE_GRAIN)))
    return int(c.OPERATION_BYTES * used + c.CONTROL_BYTES * (tiles - used))


class _Spread:
    """Lays values out over tiles, each one where the last one ended, as Poplar's default mapping does."""

    def __init__(self, count: int) -> None:
        self._count, self._next = count, 0

    def add(self, tiles: np.ndarray, size: int) -> None:
        used = min(self._count, max(1, math.ceil(size / c.TILE_GRAIN)))
        if used == self._count:
            tiles += size / used
            return
        end = self._next + used
        tiles[self._next : min(end, self._count)] += size / used
        if end > self._count:
            tiles[: end - self._count] += size / used
        self._next = end % self._count


def _distinct(captured: Captured, stages: Sequence[StageMemory]) -> list[Node]:
    """Kernels that need code of their own."""
    found: dict[tuple, Node] = {}
    for stage in stages:
        for node in (*stage.life.order, *stage.update.order):
            found.setdefault((node.kind, *node.key), node)
    return list(found.values())


def _at_peak(
    life: Lifetimes,
    captured: Captured,
    tiles: np.ndarray,
    layers: Mapping[str, dict[Category, int]],
    stages: Sequence[StageMemory],
) -> None:
    """Adds what is in use at the worst moment to tiles and layers."""
    updating = any(life is stage.update for stage in stages)
    flat = captured.update_flat if updating and captured.update_flat is not None else captured.flat
    node = life.order[life.peak]
    makers = {v: one.layer for one in life.order for v in one.writes}
    spread = _Spread(len(tiles))
    for v in life.at(life.peak):
        spread.add(tiles, flat.values[v].bytes)
        layers[makers.get(v, "")][Category.TEMPORARIES] += flat.values[v].bytes
    spread.add(tiles, node.temporary)
    layers[node.layer][Category.TEMPORARIES] += node.temporary


def _curve(stages: Sequence[StageMemory]) -> tuple[LivePoint, ...]:
    points = []
    for stage in stages:
        for life in (stage.life, stage.update):
            for node, size in zip(life.order, life.live, strict=False):
                points.append(LivePoint(node.name, node.phase, int(size)))
    return tuple(points)


def _largest(layers: Mapping[str, Mapping[Category, int]]) -> tuple[Contributor, ...]:
    found = [Contributor(layer, dict(sizes)) for layer, sizes in layers.items() if sum(sizes.values())]
    return tuple(sorted(found, key=lambda one: -one.total))


def _bytes(shape: Sequence[int], item: int) -> int:
    return math.prod(shape) * min(item, 4)
