"""Programs that read profiles with libpva read reports, and are told what a prediction does not have."""

import itertools

import pytest

import pva
from openipu.errors import UnsupportedError
from openipu.report.writing import write
from tests.report.samples import sample, sample_document


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    write(folder, sample_document())
    return pva.openReport(str(folder / "profile.pop"), str(folder / "debug.cbor"))


def test_memory_of_every_tile(report):
    estimate = sample()
    tiles = report.compilation.tiles
    assert report.compilation.target.numTiles == len(tiles) == 2 * 1472
    assert report.compilation.target.numReplicas == 2 and report.compilation.target.numIPUs == 4
    assert sum(tile.memory.total.includingGaps for tile in tiles) == sum(m.tiles.sum() for m in estimate.memory)
    assert max(t.memory.alwaysLiveBytes + t.memory.notAlwaysLiveBytes for t in tiles) == estimate.worst.worst_tile
    code = sum(tile.memory.category.vertexCode.total for tile in tiles)
    written = sum(memory["categories"]["code and vertex state"] for memory in report.document["memory"])
    assert code == pytest.approx(written)


def test_liveness_reaches_the_peak_of_a_tile(report):
    steps = report.compilation.livenessProgramSteps
    peak = max(steps, key=lambda step: step.notAlwaysLiveMemory)
    assert peak.notAlwaysLiveMemoryForTile(3) == sample().memory[0].temporaries[3]
    assert all(step.notAlwaysLiveMemoryForTile(3) <= peak.notAlwaysLiveMemoryForTile(3) for step in steps)


def test_cycles_of_every_step_are_visited(report):
    class Visitor(pva.ProgramVisitor):
        def __init__(self):
            self.executed, self.exchanged = [], []

        def visitOnTileExecute(self, onTileExecute):
            self.executed.append(onTileExecute.name)

        def visitDoExchange(self, doExchange):
            self.exchanged.append(doExchange.name)

    visitor = Visitor()
    for step in report.execution.runs[0].steps:
        step.program.accept(visitor)
    names = [operation.name for operation in sample().operations]
    assert visitor.executed == visitor.exchanged == names
    cycles = sum(ipu.cycles for step in report.execution.steps for ipu in step.ipus)
    assert cycles == pytest.approx(sum(operation.total_cycles for operation in sample().operations), rel=1e-3)
    ends = [step.ipus[0].activeCycles for step in report.execution.steps if step.ipus[0].cycles]
    assert all(one.cyclesTo == other.cyclesFrom for one, other in itertools.pairwise(ends))


def test_what_a_prediction_does_not_have_is_refused_by_name(report):
    with pytest.raises(UnsupportedError, match=r"Compilation\.graph is not part of a predicted report"):
        report.compilation.graph.numComputeSets  # noqa: B018
    assert report.poplarVersion.string.startswith("predicted by openipu")
