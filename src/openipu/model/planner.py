"""How matrix products and convolutions would be split over tiles: the cheapest split that fits into its memory."""

import functools
import math
from collections.abc import Iterator

import attrs

from openipu.hardware.target import Target
from openipu.model import constants as c

_SERIAL = (1, 2, 4, 8, 16, 32, 64)


@attrs.frozen
class Chip:
    """What the planner has to know of an IPU and of the arithmetic that is asked for.

    Attributes:
      tiles, workers, tile_bytes: of the IPU.
      inputs, outputs: channels that a block of weights in the matrix unit takes and makes.
      position: cycles of one output position in such a block.
      item, partial: bytes of an input, and of a partial sum.
      memory: bytes of a tile that temporaries may take.
    """

    tiles: int
    workers: int
    tile_bytes: int
    inputs: int
    outputs: int
    position: int
    item: int
    partial: int
    memory: float


@attrs.frozen
class Planned:
    """The cheapest way that was found.

    Attributes:
      cycles: of all.
      exchange: of which exchange between tiles.
      temporary: bytes that it takes on the tiles it uses.
      tiles: how many these are.
    """

    cycles: float
    exchange: float
    temporary: float
    tiles: int

    @property
    def bytes(self) -> int:
        """Temporary bytes of all tiles."""
        return int(self.temporary * self.tiles)

    def slower(self, cycles: float, exchange: float = 0.0) -> "Planned":
        """The same with a relayout before it."""
        return attrs.evolve(self, cycles=self.cycles + cycles, exchange=self.exchange + exchange)


def chip(target: Target, tiles: int, half: bool, half_partials: bool, proportion: float) -> Chip:
    """The IPU as the planner sees it.

    Args:
      target: the kind of IPU.
      tiles: tiles that compute; others may be set aside for transfers.
      half: inputs are 16 bits wide.
      half_partials: so are partial sums.
      proportion: of a tile's memory, for temporaries.
    """
    inputs, position = (16, 4) if half else (8, 8)
    rate = (target.half_macs if half_partials else target.half_float_macs) if half else target.float_macs
    return Chip(
        tiles=tiles,
        workers=target.workers,
        tile_bytes=target.bytes_per_tile,
        inputs=inputs,
        outputs=rate * position // inputs,
        position=position,
        item=2 if half else 4,
        partial=2 if half and half_partials else 4,
        memory=proportion * target.bytes_per_tile,
    )


@functools.lru_cache(maxsize=16384)
def product(on: Chip, rows: int, inner: int, columns: int, groups: int = 1) -> Planned:
    """`groups` independent products [rows, inner] x [inner, columns]; either factor may be the one that streams."""
    wide = _dense(on, rows, inner, columns, groups)
    high = _dense(on, columns, inner, rows, groups)
    return min(wide, high, key=lambda plan: plan.cycles)


@functools.lru_cache(maxsize=16384)
def convolution(
    on: Chip,
    batch: int,
    positions: tuple[int, int],
    inputs: int,
    outputs: int,
    kernel: tuple[int, int],
    stride: int = 1,
    groups: int = 1,
) -> Planned:
    """A convolution with so many output positions; channels are counted per group.

    Few input channels leave the matrix unit empty, so folding columns of the kernel, or all of it, into the channels is
    tried too, at the price of a relayout of what is folded.
    """
    rows, (height, width) = batch * math.prod(positions), kernel
    if height * width == 1:
        return product(on, rows, inputs, outputs, groups)

    def relayout(elements: float) -> tuple[float, float]:
        cycles = elements * on.item / on.tiles * c.RELAYOUT_BYTE
        return cycles, cycles / 2

    direct = _windows(on, batch, positions, inputs, outputs, kernel, stride, groups)
    folded = product(on, rows, inputs * height * width, outputs, groups)
    half = _windows(on, batch, positions, inputs * width, outputs, (height, 1), stride, groups)
    found = (
        direct,
        folded.slower(*relayout(groups * rows * inputs * height * width)),
        half.slower(*relayout(groups * rows * inputs * width)),
    )
    return min(found, key=lambda plan: plan.cycles)


@attrs.define
class _Search:
    """The fastest plan within its memory so far; while there is none, the one that takes least."""

    memory: float
    best: Planned | None = None
    least: Planned | None = None

    def hopeless(self, cycles: float) -> bool:
        """Whether a plan that takes at least so long need not be looked at."""
        return self.best is not None and c.PRODUCT_CALL + cycles >= self.best.cycles

    def offer(self, plan: Planned) -> None:
        if plan.temporary <= c.OVERFULL_PLAN * self.memory and (self.best is None or plan.cycles < self.best.cycles):
            self.best = plan
        if self.least is None or plan.temporary < self.least.temporary:
            self.least = plan

    @property
    def found(self) -> Planned:
        found = self.best or self.least
        assert found is not None, "a product has at least one plan"
        return found


def _dense(on: Chip, rows: int, inner: int, columns: int, groups: int) -> Planned:
    search = _Search(on.memory)
    for group_parts, column_parts, inner_parts, free in _splits(on, inner, columns, groups):
        g, nb, kb = _pieces(on, inner, columns, groups, group_parts, column_parts, inner_parts)
        m = -(-rows // min(free, rows))
        k, n = kb * on.inputs, nb * on.outputs
        worker = c.DENSE_WORKER + max(0, -(-m // on.workers) - c.DENSE_FREE_ROWS) * on.position
        compute = c.DENSE_VERTEX + g * kb * nb * (_load(on) + c.BLOCK_CALL + on.workers * worker)
        field = m * k * on.item
        if search.hopeless(compute + g * field / 8):
            continue
        used = group_parts * column_parts * inner_parts * -(-rows // m)
        search.offer(_priced(on, g, m, k, n, nb, field, 1, column_parts, inner_parts, compute, used))
    return search.found


def _windows(
    on: Chip,
    batch: int,
    positions: tuple[int, int],
    inputs: int,
    outputs: int,
    kernel: tuple[int, int],
    stride: int,
    groups: int,
) -> Planned:
    area = math.prod(kernel)
    search = _Search(on.memory)
    for group_parts, column_parts, inner_parts, free in _splits(on, inputs, outputs, groups):
        g, nb, kb = _pieces(on, inputs, outputs, groups, group_parts, column_parts, inner_parts)
        k, n = kb * on.inputs, nb * on.outputs
        for b, h, w in _blocks(batch, *positions, free):
            m, lines = b * h * w, b * h
            many = lines >= on.workers
            rows, places = (-(-lines // on.workers), -(-lines // on.workers) * w) if many else (2, -(-m // on.workers))
            worker = c.WINDOW_WORKER + c.WINDOW_ROW * rows + places * on.position
            block = _load(on) + c.BLOCK_CALL + on.workers * worker
            compute = c.WINDOW_VERTEX + g * area * kb * nb * block
            field = b * ((h - 1) * stride + kernel[0]) * ((w - 1) * stride + kernel[1]) * k * on.item
            if search.hopeless(compute + g * field / 8):
                continue
            spread = -(-batch // b) * -(-positions[0] // h) * -(-positions[1] // w)
            used = group_parts * column_parts * inner_parts * spread
            search.offer(_priced(on, g, m, k, n, nb, field, area, column_parts, inner_parts, compute, used))
    return search.found


def _load(on: Chip) -> float:
    """Cycles that loading a block of weights takes, 8 bytes a cycle."""
    return on.outputs * on.inputs * on.item / 8


def _splits(on: Chip, inner: int, columns: int, groups: int) -> Iterator[tuple[int, int, int, int]]:
    """Ways to cut groups, columns and the inner dimension, and the tiles that are left to cut rows over."""
    blocks, width = -(-inner // on.inputs), -(-columns // on.outputs)
    for group_parts in _parts(groups, on.tiles):
        for column_parts in _parts(width, on.tiles // group_parts):
            for inner_parts in _parts(blocks, on.tiles // (group_parts * column_parts)):
                yield group_parts, column_parts, inner_parts, on.tiles // (group_parts * column_parts * inner_parts)


def _pieces(
    on: Chip, inner: int, columns: int, groups: int, group_parts: int, column_parts: int, inner_parts: int
) -> tuple[int, int, int]:
    """What one tile has of a split: groups, blocks of columns, blocks of the inner dimension."""
    width, blocks = -(-columns // on.outputs), -(-inner // on.inputs)
    return -(-groups // group_parts), -(-width // column_parts), -(-blocks // inner_parts)


def _priced(
    on: Chip,
    g: int,
    m: int,
    k: int,
    n: int,
    nb: int,
    field: float,
    area: int,
    column_parts: int,
    inner_parts: int,
    compute: float,
    used: int,
) -> Planned:
    """The cost of one split; output channels are done one part after another to save memory."""
    copies = 1 if inner_parts == 1 else 2
    serial, temporary = 1, 0.0
    for serial in _SERIAL:
        narrow = -(-nb // serial) * on.outputs
        temporary = g * (field + area * k * narrow * on.item) + m * narrow * on.partial * g * copies
        if temporary <= on.memory or serial >= nb:
            break
    # Neighbouring tiles share a bus, so an even number of them receives the same field twice as fast.
    exchange = g * field / (8 if column_parts % 2 == 0 else 4) + g * area * k * n * on.item / 4
    added, sent = _partials(on, m * n * g, inner_parts)
    phases = (serial * copies - 1) * c.PRODUCT_PHASE
    cycles = c.PRODUCT_CALL + phases + exchange + compute + added + sent
    return Planned(cycles, exchange + sent, temporary, used)


def _partials(on: Chip, elements: int, parts: int) -> tuple[float, float]:
    """Cycles of adding up partial sums, and of exchanging them; of casting them where there is nothing to add."""
    if parts == 1:
        return (elements / 2 + c.CAST_CALL if on.partial > on.item else 0.0), 0.0
    vector = 4 if on.partial == 4 else 8
    share = -(-elements // parts)
    mine = -(-share // vector)
    each = c.PARTIALS_EACH * (parts - 1) + c.PARTIALS_VECTOR
    add = on.workers * (c.PARTIALS_CALL + each * -(-mine // on.workers))
    return add, elements * (parts - 1) / parts * on.partial / 4


@functools.lru_cache(maxsize=4096)
def _parts(size: int, most: int) -> tuple[int, ...]:
    """Numbers of parts that give pieces of different sizes."""
    found, parts = [], 1
    while parts <= min(size, most):
        found.append(parts)
        piece = -(-size // parts)
        if piece == 1:
            break
        parts = max(parts + 1, -(-size // (piece - 1)))
    return tuple(found)


@functools.lru_cache(maxsize=4096)
def _blocks(batch: int, height: int, width: int, tiles: int) -> tuple[tuple[int, int, int], ...]:
    """Blocks of a batch of images that one tile may have: the smallest ones, the squarest of each size."""
    best: dict[int, tuple[int, int, int]] = {}
    for down in _parts(height, tiles):
        h = -(-height // down)
        for across in _parts(width, tiles // down):
            w = -(-width // across)
            b = -(-batch // min(batch, tiles // (down * across)))
            size = b * h * w
            if size not in best or h + w < sum(best[size][1:]):
                best[size] = (b, h, w)
    return tuple(best[size] for size in sorted(best)[:4])
