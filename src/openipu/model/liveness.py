"""How long values live on an IPU, and how much memory that takes at each moment of a stage."""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence

import attrs
import numpy as np

from openipu.model.estimate import OperationKind, Pass
from openipu.model.flatten import Value
from openipu.model.nodes import Node
from openipu.model.options import Recompute

_PRODUCTS = (OperationKind.MATMUL, OperationKind.CONVOLUTION)


@attrs.frozen(eq=False)
class Lifetimes:
    """The temporaries of one stage over its kernels, in the order they run.

    Attributes:
      order: the kernels.
      live: bytes in use during each, its own temporaries included.
      moments: for every value, by root, the stretches of `order` it lives in, both ends included.
      stash: roots of what waits between the passes when other micro-batches come between them.
      recomputed: kernels of the forward pass that run again.
    """

    order: tuple[Node, ...]
    live: np.ndarray
    moments: dict[int, list[tuple[int, int]]]
    stash: tuple[int, ...]
    recomputed: frozenset[int]

    @property
    def peak(self) -> int:
        """The moment with most bytes in use."""
        return int(self.live.argmax()) if len(self.live) else 0

    def at(self, moment: int) -> list[int]:
        """The values that live at a moment."""
        return [v for v, spans in self.moments.items() if any(first <= moment <= last for first, last in spans)]


def scheduled(nodes: Sequence[Node]) -> list[Node]:
    """Kernels of one pass in an order that frees memory early.

    Front ends list kernels in any order, e.g. all gradients of weights last. Those go as soon as they can; others keep
    their order.
    """
    writer = {v: i for i, node in enumerate(nodes) for v in node.writes}
    needs = [{writer[v] for v in node.reads if v in writer and writer[v] != i} for i, node in enumerate(nodes)]
    readers: dict[int, list[int]] = defaultdict(list)
    for i, found in enumerate(needs):
        for j in found:
            readers[j].append(i)
    waiting = [len(found) for found in needs]
    ready = [i for i, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    eager: list[int] = []
    order = []
    while ready or eager:
        i = heapq.heappop(eager or ready)
        order.append(nodes[i])
        for j in readers[i]:
            waiting[j] -= 1
            if not waiting[j]:
                # Gradients of weights feed nothing else in this pass: no reason to let their factors wait.
                heapq.heappush(eager if not readers[j] and nodes[j].phase is Pass.BACKWARD else ready, j)
    return order if len(order) == len(nodes) else list(nodes)


def lifetimes(
    forward: Sequence[Node],
    backward: Sequence[Node],
    values: Sequence[Value],
    resident: Iterable[int],
    returned: Iterable[int],
    recompute: Recompute,
) -> Lifetimes:
    """How long the values of one stage live.

    Args:
      forward, backward: its kernels, as `scheduled` orders them.
      values: all values, by number.
      resident: roots of values that are always there (weights, state, inputs): not counted here.
      returned: roots of values that stay until the end, such as gradients that no accumulator takes.
      recompute: what is computed again for the backward pass.
    """
    order = [*forward, *backward]
    always, end, middle = set(resident), len(order) - 1, len(forward)
    kept_to_end = set(returned)
    first: dict[int, int] = {}
    reads: dict[int, list[int]] = defaultdict(list)
    for i, node in enumerate(order):
        for v in node.writes:
            first.setdefault(v, i)
        for v in node.reads:
            first.setdefault(v, i if i < middle else middle)
            reads[v].append(i)
    makers = {v: node for node in order for v in node.writes}
    made_forward = {v for node in forward for v in node.writes}
    crossing = [v for v, found in reads.items() if found[-1] >= middle and first[v] < middle and v not in always]
    again = {v for v in crossing if v in made_forward and _recomputed(makers[v], recompute)}
    starts = _starts(again, reads, _segments(forward, recompute), middle)
    moments: dict[int, list[tuple[int, int]]] = {}
    for v, begin in first.items():
        if v in always:
            continue
        last = end if v in kept_to_end else max(reads[v], default=begin)
        if v in again and v not in kept_to_end:
            before = [i for i in reads[v] if i < middle]
            moments[v] = [(begin, max(before, default=begin)), (starts[v], last)]
        else:
            moments[v] = [(begin, last)]
    change = np.zeros(len(order) + 1)
    for v, spans in moments.items():
        for begin, last in spans:
            change[begin] += values[v].bytes
            change[last + 1] -= values[v].bytes
    live = np.cumsum(change)[:-1] + np.array([node.temporary for node in order] or [0])[: len(order)]
    rerun = frozenset(id(node) for node in forward if _reruns(node, again, recompute))
    return Lifetimes(tuple(order), live, moments, tuple(v for v in crossing if v not in again), rerun)


def _recomputed(maker: Node, recompute: Recompute) -> bool:
    if recompute is Recompute.NONE or maker.keep:
        return False
    if recompute is Recompute.CHEAP:
        # Random numbers would come out differently.
        return maker.kind not in (*_PRODUCTS, OperationKind.RANDOM)
    return True


def _reruns(node: Node, again: set[int], recompute: Recompute) -> bool:
    if recompute is Recompute.CHEAP:
        return any(v in again for v in node.writes)
    return recompute is not Recompute.NONE and bool(again)


def _segments(forward: Sequence[Node], recompute: Recompute) -> dict[int, int]:
    """The stretch of kernels that is computed again at once, by the roots of the values it makes."""
    if recompute is Recompute.CHEAP:
        return {v: v for node in forward for v in node.writes}
    found: dict[int, int] = {}
    number = 0
    for node in forward:
        # Kernels of gradients make elementwise results again themselves, from what products left.
        cheap = node.kind is OperationKind.ELEMENTWISE
        found.update((v, -1 - v if cheap else number) for v in node.writes)
        if node.keep and recompute is Recompute.CHECKPOINTS:
            number += 1
    return found


def _starts(again: set[int], reads: dict[int, list[int]], segment: dict[int, int], middle: int) -> dict[int, int]:
    """When values come to life again: all of a stretch when the backward pass first needs one of it."""
    earliest: dict[int, int] = {}
    for v in again:
        use = min(i for i in reads[v] if i >= middle)
        earliest[segment[v]] = min(earliest.get(segment[v], use), use)
    return {v: earliest[segment[v]] for v in again}
