"""Reads a report the way libpva reads profiles: the names that public programs use, answered from the document.

Everything here is predicted. What a prediction does not have (compute sets, variables on tiles, vertices) is refused
by name rather than answered with a guess.
"""

from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any

import attrs

from openipu.errors import UnsupportedError
from openipu.report.document import Document
from openipu.report.reading import read

# Poplar's names of categories that the model knows; it knows them for an IPU, and spreads them over its tiles.
_CATEGORIES = {
    "constant": "constants",
    "internalExchangeCode": "exchange code",
    "vertexCode": "code and vertex state",
}


class _Answers:
    """What has some of the names of libpva's classes; the others are refused by name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        known = ", ".join(n for n in dir(self) if not n.startswith("_"))
        raise UnsupportedError(
            f"{type(self).__name__}.{name} is not part of a predicted report. It has: {known}. All that openipu "
            "predicts is in report.json."
        )


@attrs.frozen
class Version(_Answers):
    """A version; `string` says that nothing was measured on hardware."""

    string: str


@attrs.frozen
class Target(_Answers):
    """The IPUs of the report; `numTiles` counts those of one replica, as many as `Compilation.tiles` has."""

    numIPUs: int
    numTiles: int
    tilesPerIpu: int
    bytesPerTile: int
    totalMemory: int
    clockFrequency: float
    numReplicas: int
    ipusPerReplica: int
    architecture: str


@attrs.frozen
class Size(_Answers):
    """Bytes; a prediction has no gaps between variables."""

    includingGaps: int
    excludingGaps: int


@attrs.frozen
class CategorySize(_Answers):
    """Bytes of one category on one tile."""

    total: float


class Categories(_Answers):
    """Memory of one tile by Poplar's categories, as far as the model tells them apart."""

    def __init__(self, memory: Document) -> None:
        tiles = len(memory["always_live"])
        for name, ours in _CATEGORIES.items():
            setattr(self, name, CategorySize(memory["categories"].get(ours, 0) / tiles))


@attrs.frozen
class TileMemory(_Answers):
    """Memory of one tile."""

    alwaysLiveBytes: int
    notAlwaysLiveBytes: int
    total: Size
    category: Categories


@attrs.frozen
class Tile(_Answers):
    """One tile of a replica's IPUs."""

    memory: TileMemory


@attrs.frozen
class Program(_Answers):
    """What one operation does: computation on tiles, or exchange between them.

    Attributes:
      name: the operation's.
      type: `OnTileExecute` or `DoExchange`.
    """

    name: str
    type: str

    def accept(self, visitor: "ProgramVisitor") -> None:
        """Calls the visitor's method for this type of program."""
        getattr(visitor, f"visit{self.type}")(self)


class ProgramVisitor:
    """Visits programs; subclasses override what they want to hear of."""

    def visitOnTileExecute(self, onTileExecute: Program) -> None:
        """Tiles compute."""

    def visitDoExchange(self, doExchange: Program) -> None:
        """Tiles exchange data."""

    def visitStreamCopyBegin(self, streamCopy: Program) -> None:
        """Never called: a prediction has one time for all transfers with the host."""

    visitStreamCopyMid = visitStreamCopyEnd = visitStreamCopyBegin


class LivenessStep(_Answers):
    """Memory at one operation."""

    def __init__(self, name: str, size: int, temporaries: Sequence[int], peak: int) -> None:
        self.program = Program(name, "OnTileExecute")
        self.notAlwaysLiveMemory = size
        self._temporaries, self._share = temporaries, size / peak if peak else 0.0

    def notAlwaysLiveMemoryForTile(self, tile: int) -> int:
        """Bytes on one tile: as much of its peak as all tiles have of theirs."""
        return round(self._temporaries[tile] * self._share)


@attrs.frozen
class Cycles(_Answers):
    """When something begins and ends, in cycles of a step."""

    cyclesFrom: int
    cyclesTo: int


@attrs.frozen
class IpuStep(_Answers):
    """What one IPU does in an execution step."""

    cycles: int
    activeCycles: Cycles


@attrs.frozen
class ExecutionStep(_Answers):
    """One operation, computing or exchanging; `ipus` are those of a replica, all but one with no cycles."""

    program: Program
    ipus: tuple[IpuStep, ...]


@attrs.frozen
class Run(_Answers):
    """One step of the program: a micro-batch, with the update."""

    name: str
    steps: tuple[ExecutionStep, ...]


class Compilation(_Answers):
    """What is known before a program runs."""

    def __init__(self, found: Document) -> None:
        target, plan = found["target"], found["plan"]
        self.target = Target(
            numIPUs=plan["ipus"],
            numTiles=plan["ipus_per_replica"] * target["tiles"],
            tilesPerIpu=target["tiles"],
            bytesPerTile=target["bytes_per_tile"],
            totalMemory=plan["ipus"] * target["memory"],
            clockFrequency=target["clock_hz"],
            numReplicas=plan["replicas"],
            ipusPerReplica=plan["ipus_per_replica"],
            architecture=target["architecture"],
        )
        self.tiles = tuple(tile for memory in found["memory"] for tile in _tiles(memory))
        self.livenessProgramSteps = tuple(
            step for memory in found["memory"] for step in _liveness(memory, found["operations"])
        )


class Execution(_Answers):
    """What a step of one replica would do, operation by operation."""

    def __init__(self, found: Document) -> None:
        self.steps = tuple(_steps(found))
        self.runs = (Run(found["program"]["name"], self.steps),)
        self.totalCycles = round(found["prediction"]["cycles_per_step"])


class Report(_Answers):
    """A report.

    Attributes:
      compilation, execution: as libpva has them.
      poplarVersion: says that this is a prediction.
      document: the whole report as JSON.
    """

    def __init__(self, found: Document) -> None:
        self.document = found
        self.poplarVersion = Version(f"predicted by openipu {found['made']['openipu']}")
        self.compilation = Compilation(found)
        self.execution = Execution(found)


def openReport(profile: str | PathLike[str], debug: str | PathLike[str] | None = None) -> Report:
    """Opens a report.

    Args:
      profile: a `profile.pop` or `report.json` of openipu, or a folder with one.
      debug: of no use here: the names of operations are in the report itself.
    """
    return Report(read(profile))


def _tiles(memory: Document) -> Iterator[Tile]:
    categories = Categories(memory)
    for always, temporary in zip(memory["always_live"], memory["temporaries"], strict=True):
        yield Tile(TileMemory(always, temporary, Size(always + temporary, always + temporary), categories))


def _liveness(memory: Document, operations: list[Document]) -> Iterator[LivenessStep]:
    peak = max((size for _, size in memory["liveness"]), default=0)
    for number, size in memory["liveness"]:
        name = operations[number]["name"] if number >= 0 else ""
        yield LivenessStep(name, size, memory["temporaries"], peak)


def _steps(found: Document) -> Iterator[ExecutionStep]:
    ipu_of = {stage["index"]: stage["ipu"] for stage in found["stages"]}
    clocks = [0.0] * found["plan"]["ipus_per_replica"]
    for operation in found["operations"]:
        ipu = ipu_of[operation["stage"]]
        exchange = operation["exchange_cycles"] * operation["count"]
        compute = operation["cycles"] * operation["count"] - exchange
        for kind, cycles in (("DoExchange", exchange), ("OnTileExecute", compute)):
            if cycles > 0:
                begin = clocks[ipu]
                clocks[ipu] += cycles
                active = Cycles(round(begin), round(clocks[ipu]))
                busy = IpuStep(active.cyclesTo - active.cyclesFrom, active)
                ipus = tuple(busy if i == ipu else IpuStep(0, Cycles(0, 0)) for i in range(len(clocks)))
                yield ExecutionStep(Program(operation["name"], kind), ipus)
