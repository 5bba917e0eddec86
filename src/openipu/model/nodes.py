"""From instructions to kernels: elementwise work that belongs together is fused, everything is priced."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

import attrs
from jax.extend import core

from openipu.hardware.target import Target
from openipu.model import constants as c
from openipu.model import kernels, planner, system
from openipu.model.estimate import OperationKind, Pass
from openipu.model.flatten import ALIASES, Flat, Instruction, Value, flatten
from openipu.model.fusion import fused
from openipu.model.machine import Machine
from openipu.model.options import Options
from openipu.model.shapes import Product, matrix_product, window_of, window_product

_FREE = ALIASES | {"iota", "axis_index", "create_token", "random_wrap", "random_unwrap", "random_seed",
                   "random_split", "random_fold_in", "random_clone", "threefry2x32"}  # fmt: skip
# Up to so many elements, statistics rather than data.
_SMALL = 4096
_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_KINDS = {
    "dot_general": OperationKind.MATMUL,
    "conv_general_dilated": OperationKind.CONVOLUTION,
    "gather": OperationKind.GATHER,
    "dynamic_slice": OperationKind.GATHER,
    "concatenate": OperationKind.RELAYOUT,
    "pad": OperationKind.RELAYOUT,
    "dynamic_update_slice": OperationKind.RELAYOUT,
    "sort": OperationKind.SORT,
    "top_k": OperationKind.SORT,
    "approx_top_k": OperationKind.SORT,
    "argmax": OperationKind.REDUCTION,
    "argmin": OperationKind.REDUCTION,
    "random_bits": OperationKind.RANDOM,
    "rng_bit_generator": OperationKind.RANDOM,
    "rng_uniform": OperationKind.RANDOM,
    "random_gamma": OperationKind.RANDOM,
} | dict.fromkeys(("cholesky", "triangular_solve", "lu", "qr", "geqrf", "eigh", "eig", "svd", "schur",
                   "householder_product", "tridiagonal_solve", "hessenberg"), OperationKind.LINEAR_ALGEBRA) \
  | dict.fromkeys(("pure_callback", "io_callback", "debug_callback", "debug_print", "outside_call"),
                  OperationKind.HOST_CALL) \
  | dict.fromkeys(("psum", "psum2", "psum_invariant", "pmax", "pmin", "all_gather", "all_to_all", "ppermute",
                   "reduce_scatter", "pbroadcast"), OperationKind.COLLECTIVE)  # fmt: skip


@attrs.define(eq=False)
class Node:
    """One kernel, priced.

    Attributes:
      kind, label, layer, phase, stage, count: what it is, where it belongs, how often it runs.
      reads, writes: roots of values.
      elements, shape, dtype: of its largest result.
      flops, bytes: of one run.
      cycles, exchange: of one run, as planned: without the factor of hardware.
      temporary: bytes on the whole IPU while it runs.
      key: operations with equal keys share their code.
      keep: it makes a checkpoint of recomputation.
      name: unique in its program, see `named`.
    """

    kind: OperationKind
    label: str
    layer: str
    phase: Pass
    stage: int
    count: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str
    flops: float = 0.0
    bytes: int = 0
    cycles: float = 0.0
    exchange: float = 0.0
    temporary: int = 0
    key: tuple = ()
    keep: bool = False
    name: str = ""


def nodes(flat: Flat, machine: Machine, weights: Iterable[int] = (), update: bool = False,
          stages: Sequence[int] | None = None) -> list[Node]:  # fmt: skip
    """The kernels of a program, in an order that respects what they depend on.

    Args:
      flat: the program.
      machine: the IPU.
      weights: numbers of inputs that stay on the IPU: laying them out anew is part of the products that use them.
      update: the program is a weight update.
      stages: the stage of each of its inputs, for an update; others belong to the latest stage of what they use.
    """
    return _Builder(flat, machine, set(weights), update, stages).build()


class _Builder:
    def __init__(
        self, flat: Flat, machine: Machine, weights: set[int], update: bool, stages: Sequence[int] | None
    ) -> None:
        self._flat, self._machine, self._weights, self._update = flat, machine, weights, update
        self._values = flat.values
        self._stage_of: dict[int, int] = dict(zip(flat.inputs, stages, strict=True)) if stages is not None else {}
        self._backward: set[int] = set()
        self._layouts: dict[int, tuple] = {}
        self._passes: dict[tuple, int] = defaultdict(int)
        # A checkpoint is a mark on a view of a value.
        self._kept = {flat.values[v].root for one in flat.instructions if one.keep for v in one.outputs}

    def build(self) -> list[Node]:
        flat = self._flat
        phases = [self._place(one) for one in flat.instructions]
        kinds = [self._kind(one) for one in flat.instructions]
        self._cast_by_reductions(kinds)
        self._keep_narrow(kinds)
        groups = fused(flat, kinds, phases)
        members: dict[int, list[int]] = defaultdict(list)
        for i, kind in enumerate(kinds):
            if kind is OperationKind.ELEMENTWISE:
                members[groups[i]].append(i)
        uses = self._uses()
        made: list[tuple[int, Node]] = []
        for i, kind in enumerate(kinds):
            if kind is None:
                continue
            if kind is OperationKind.ELEMENTWISE:
                if members[groups[i]][-1] == i:
                    made.append((i, self._elementwise(members[groups[i]], phases[i], uses)))
            else:
                made.append((i, self._single(i, kind, phases[i])))
        return [node for _, node in made]

    def _place(self, one: Instruction) -> tuple[Pass, int]:
        """The pass and stage of an instruction. What depends on the backward pass belongs to it."""
        stage, back = self._machine.place(one.level)
        if self._update:
            stage = max((self._stage_of.get(v, 0) for v in one.inputs), default=0)
            self._stage_of.update(dict.fromkeys(one.outputs, stage))
            return Pass.UPDATE, stage
        if not self._machine.stages:
            back = one.backward or any(v in self._backward for v in one.inputs)
        back = back and self._machine.training
        if back:
            self._backward.update(one.outputs)
        return (Pass.BACKWARD if back else Pass.FORWARD), stage

    def _kind(self, one: Instruction) -> OperationKind | None:
        """The class of an instruction; None when it takes no time."""
        name = one.primitive
        if one.level < 0:
            return None
        if name == "loop":
            return OperationKind.CONTROL
        if name == "transpose":
            return OperationKind.RELAYOUT if self._moves(one) else None
        if name in _KINDS:
            return _KINDS[name]
        if name in _FREE or not one.outputs:
            return None
        if name == "convert_element_type" and self._values[one.inputs[0]].dtype == self._values[one.outputs[0]].dtype:
            return None
        if self._random_bits(one.outputs) or not one.inputs:
            return None
        if name.startswith("reduce_window") or name.startswith("select_and_"):
            return OperationKind.POOLING
        if name.startswith("reduce") or name.startswith("cum"):
            return OperationKind.REDUCTION
        if name.startswith("scatter"):
            return OperationKind.SCATTER
        return OperationKind.ELEMENTWISE

    def _cast_by_reductions(self, kinds: list[OperationKind | None]) -> None:
        """A reduction reads float16 and writes it though it sums up in float32: casts around it take no time."""
        values, instructions = self._values, self._flat.instructions
        readers: dict[int, list[int]] = defaultdict(list)
        makers: dict[int, int] = {}
        for i, one in enumerate(instructions):
            for v in one.inputs:
                readers[v].append(i)
            for v in one.outputs:
                makers[v] = i
        for one_index, one in enumerate(instructions):
            if one.primitive != "convert_element_type" or kinds[one_index] is None:
                continue
            (given,), (made,) = one.inputs, one.outputs
            if not (values[given].floating and values[made].floating):
                continue
            before = kinds[makers[given]] if given in makers else None
            after = {kinds[i] for i in readers[made]}
            if after == {OperationKind.REDUCTION} or before is OperationKind.REDUCTION:
                kinds[one_index] = None
                values[made] = attrs.evolve(values[made], root=values[given].root)

    def _keep_narrow(self, kinds: list[OperationKind | None]) -> None:
        """What is computed of float16 arrays alone is stored in float16, though frameworks widen it for a while.

        Normalisations are written so: statistics in float32, of values that an IPU keeps in float16.
        """
        values = self._values
        for kind, one in zip(kinds, self._flat.instructions, strict=True):
            if kind is not OperationKind.ELEMENTWISE and one.primitive not in ALIASES:
                continue
            for v in one.outputs:
                made = values[v]
                if made.dtype != "float32" or made.size <= _SMALL:
                    continue
                given = [values[u] for u in one.inputs if values[values[u].root].size == made.size]
                if given and all((u.floating and u.half) or u.dtype == "bool" for u in given):
                    values[v] = attrs.evolve(made, item=2)

    def _moves(self, one: Instruction) -> bool:
        """Whether a transposition moves data: that of weights and of matrices is how a product reads them."""
        value = self._values[one.inputs[0]]
        kept = [d for d in one.params["permutation"] if value.shape[d] > 1]
        return len(kept) > 2 and kept != sorted(kept) and value.root not in self._weights

    def _random_bits(self, outputs: Sequence[int]) -> bool:
        """Whether values are bits of a random generator: an IPU has one in hardware."""
        return all(self._values[v].dtype in ("uint32", "uint64") for v in outputs)

    def _crossing(self, one: Instruction) -> bool:
        """Whether random bits become random numbers here."""
        return any(self._values[v].dtype in ("uint32", "uint64") and self._values[v].size > 16 for v in one.inputs)

    def _uses(self) -> dict[int, set[int]]:
        """The instructions that read each value, by its root; the program's results count as read at its end."""
        uses: dict[int, set[int]] = defaultdict(set)
        for i, one in enumerate(self._flat.instructions):
            for v in one.inputs:
                uses[self._values[v].root].add(i)
        for v in self._flat.outputs:
            if v is not None:
                uses[self._values[v].root].add(len(self._flat.instructions))
        return uses

    def _elementwise(self, group: list[int], place: tuple[Pass, int], uses: dict[int, set[int]]) -> Node:
        instructions, values = self._flat.instructions, self._values
        inside = set(group)
        own = {values[v].root for i in group for v in instructions[i].outputs}
        writes = [r for r in dict.fromkeys(values[v].root for i in group for v in instructions[i].outputs)
                  if not uses[r] <= inside]  # fmt: skip
        reads = [
            r for r in dict.fromkeys(values[v].root for i in group for v in instructions[i].inputs) if r not in own
        ]
        largest = max((values[v] for i in group for v in instructions[i].outputs), key=lambda v: (v.size, v.floating))
        half = all(values[v].half for i in group for v in instructions[i].outputs if values[v].size == largest.size)
        tiles = self._machine.tiles
        last = instructions[group[-1]]
        names = [instructions[i].primitive for i in group]
        label = "+".join(dict.fromkeys(names[:4])) + ("+..." if len(set(names)) > 4 else "")
        kind = OperationKind.ELEMENTWISE
        if any(self._crossing(instructions[i]) for i in group):
            kind, label = OperationKind.RANDOM, "random"
            cycles = kernels.random(tiles, largest.size, half, bool(_COMPARISONS.intersection(names)))
        else:
            per_vector = sum(self._instruction(instructions[i], half) for i in group)
            inputs = sum(1 for r in reads if values[r].size >= largest.size)
            cycles = kernels.elementwise(tiles, largest.size, half, per_vector, len(group), inputs)
        size = sum(values[r].bytes for r in (*reads, *writes))
        key = (label, largest.shape, largest.dtype, len(group), len(reads))
        return Node(kind, label, last.layer, *place, last.count, tuple(reads), tuple(writes), largest.shape,
                    largest.dtype, 1.0 * largest.size * len(group), size, cycles, key=key,
                    keep=not self._kept.isdisjoint(writes))  # fmt: skip

    def _instruction(self, one: Instruction, half: bool) -> float:
        name = one.primitive
        if name == "div" and (one.literals or self._narrow(one.inputs[-1])):
            # Dividing by one value per row is multiplying by its inverse.
            name = "mul"
        if name == "integer_pow":
            return max(1.0, math.log2(abs(one.params["y"]) + 1))
        return kernels.instruction(name, half)

    def _narrow(self, value: int) -> bool:
        found = self._values[value]
        return self._values[found.root].size < found.size

    def _single(self, i: int, kind: OperationKind, place: tuple[Pass, int]) -> Node:
        one, values = self._flat.instructions[i], self._values
        reads = tuple(dict.fromkeys(values[v].root for v in one.inputs))
        writes = tuple(dict.fromkeys(values[v].root for v in one.outputs))
        if one.primitive == "transpose":
            writes = ()
        result = max((values[v] for v in one.outputs), key=lambda v: v.bytes, default=None)
        shape, dtype = (result.shape, result.dtype) if result is not None else ((), "")
        size = sum(values[v].bytes for v in (*one.inputs, *one.outputs))
        node = Node(kind, _label(one.primitive), one.layer, *place, one.count, reads, writes, shape, dtype, 0.0, size,
                    keep=not self._kept.isdisjoint(writes))  # fmt: skip
        node.key = (one.primitive, *(values[v].shape for v in one.inputs), shape, dtype)
        if kind in (OperationKind.MATMUL, OperationKind.CONVOLUTION):
            self._product(node, one)
        else:
            node.cycles, node.exchange = self._priced(node, one, result)
        return node

    def _product(self, node: Node, one: Instruction) -> None:
        left, right = (self._values[v] for v in one.inputs[:2])
        backward = node.phase is Pass.BACKWARD
        if node.kind is OperationKind.MATMUL:
            found = matrix_product(one, left, right)
        else:
            found = window_product(one, left, right, self._values[one.outputs[0]], backward)
        tiles = self._machine.tiles
        node.flops = found.flops
        if found.depthwise:
            # The larger of input and output counts: with a stride, positions that are left out are passed over.
            other = right if found.folded else self._values[one.outputs[0]]
            window = found.rows if found.folded else math.prod(found.kernel)
            node.cycles = kernels.depthwise(tiles, max(left.size, other.size), window, left.half)
            node.cycles *= c.DEPTHWISE_BACKWARD if backward else 1.0
            return
        chip = self._machine.chip(node.kind, node.stage, left.half and right.half)
        plan = _planned(chip, found)
        node.cycles, node.exchange, node.temporary = plan.cycles, plan.exchange, plan.bytes
        if found.folded:
            node.cycles += kernels.relayout(tiles, found.folded * left.item)
        for value in (left, right):
            # A factor that another product reads along another dimension has to be laid out again.
            wanted = (found.inner, backward)
            if self._layouts.setdefault(value.root, wanted) != wanted:
                moved = kernels.relayout(tiles, value.bytes)
                node.cycles, node.exchange = node.cycles + moved, node.exchange + moved / 2

    def _priced(self, node: Node, one: Instruction, result: Value | None) -> tuple[float, float]:
        tiles, values = self._machine.tiles, self._values
        given = [values[v] for v in one.inputs]
        largest = max(given, key=lambda v: v.size, default=result)
        if node.kind is OperationKind.CONTROL:
            return 0.0, 0.0
        if node.kind is OperationKind.HOST_CALL or result is None or largest is None:
            seconds = c.HOST_LATENCY + node.bytes / c.HOST_BANDWIDTH
            return seconds * self._machine.target.clock_hz / c.HARDWARE_FACTOR, 0.0
        if node.kind is OperationKind.COLLECTIVE:
            seconds = system.all_reduce(result.bytes, self._machine.replicas, 1)
            return seconds * self._machine.target.clock_hz / c.HARDWARE_FACTOR, 0.0
        if node.kind is OperationKind.REDUCTION:
            node.flops = float(largest.size)
            half = values[largest.root].half
            # Derivatives ask for the same sums in several forms; kernels of normalisations go over data less often.
            same = (node.layer, node.phase, node.stage, largest.size, result.size)
            self._passes[same] += 1
            if node.layer and self._passes[same] > c.REDUCTION_PASSES:
                return c.ELEMENTWISE_CALL, 0.0
            cycles = kernels.reduction(tiles, largest.size, result.size, half)
            return cycles, min(cycles, c.REDUCTION_LOCAL_CALL / 2)
        if node.kind is OperationKind.POOLING:
            return self._pooling(node, one, given, result)
        if node.kind is OperationKind.GATHER:
            rows = 1 if one.primitive == "dynamic_slice" else given[-1].size // max(1, given[-1].shape[-1])
            cycles = kernels.gather(tiles, given[0].bytes, rows, result.bytes)
            return cycles, tiles.share(result.bytes) / 2
        if node.kind is OperationKind.SCATTER:
            rows = given[1].size // max(1, given[1].shape[-1]) if len(given) > 2 else 1
            moved = given[-1].bytes
            return kernels.scatter(tiles, given[0].bytes, rows, moved), tiles.share(moved) / 2
        if node.kind is OperationKind.SORT:
            length = largest.shape[-1] if largest.shape else 1
            return kernels.sort(tiles, largest.size, length), 0.0
        if node.kind is OperationKind.RANDOM:
            return kernels.random(tiles, result.size, result.half, False), 0.0
        if node.kind is OperationKind.LINEAR_ALGEBRA:
            columns = largest.shape[-1] if largest.shape else 1
            return kernels.factorisation(tiles, columns, largest.size // max(1, columns * columns)), 0.0
        cycles = kernels.relayout(tiles, result.bytes)
        return cycles, cycles / 2

    def _pooling(self, node: Node, one: Instruction, given: list[Value], result: Value) -> tuple[float, float]:
        tiles = self._machine.tiles
        window = window_of(one.params)
        if one.primitive.startswith("select_and_"):
            pooled = min(given, key=lambda v: v.size)
            return kernels.pooling_gradient(tiles, pooled.size, window, pooled.half), 0.0
        node.flops = float(result.size * window)
        return kernels.pooling(tiles, result.size, window, result.half), 0.0


def _planned(chip: planner.Chip, found: Product) -> planner.Planned:
    if found.kernel == (1, 1):
        return planner.product(chip, found.rows, found.inner, found.columns, found.groups)
    return planner.convolution(
        chip, found.batch, found.positions, found.inner, found.columns, found.kernel, found.stride, found.groups
    )


def _label(primitive: str) -> str:
    return {"dot_general": "matmul", "conv_general_dilated": "convolution"}.get(primitive, primitive)


def named(found: Iterable[Node]) -> None:
    """Gives kernels names of their own: the layer, what is done, and a number where that is not enough."""
    seen: dict[str, int] = defaultdict(int)
    for node in found:
        base = f"{node.layer}/{node.label}" if node.layer else node.label
        seen[base] += 1
        node.name = base if seen[base] == 1 else f"{base}.{seen[base]}"


def kernels_of(
    closed: core.ClosedJaxpr,
    target: Target,
    options: Options = Options(),  # noqa: B008  (frozen)
    training: bool = False,
) -> list[Node]:
    """The kernels of any jaxpr on one IPU, priced as planned: hardware takes `HARDWARE_FACTOR` as long.

    Args:
      closed: the jaxpr.
      target: the kind of IPU.
      options: what was asked of it.
      training: what JAX derived is a backward pass.
    """
    return nodes(flatten(closed), Machine(target, options, training=training))
