"""Execution strategies: where blocks run, and what cannot be."""

import pytest

import poptorch
from openipu.torch.options import Placement


def places(strategy, *blocks):
    strategy.onStartTracing()
    return [strategy.placement(*block) for block in blocks]


def test_without_arguments_the_stage_is_the_ipu():
    assert places(poptorch.PipelinedExecution(), ("a", 0), ("b", 2)) == [Placement(0, 0, 0), Placement(2, 0, 2)]
    with pytest.raises(AssertionError, match="SameAsIpu was selected but no IPU was specified for block a"):
        places(poptorch.PipelinedExecution(poptorch.AutoStage.SameAsIpu), ("a", None))


def test_auto_increment_numbers_new_blocks_from_one_in_every_capture():
    strategy = poptorch.ShardedExecution(poptorch.AutoStage.AutoIncrement)
    for _ in range(2):
        found = places(strategy, ("a", None), ("b", 5), ("a", None))
        assert found == [Placement(1, 0, 1), Placement(2, 0, 5), Placement(1, 0, 1)]


def test_explicit_stages():
    strategy = poptorch.PipelinedExecution(poptorch.Stage("a", "b").ipu(3), ["c", "d"], "e")
    assert places(strategy, ("b", 1), ("d", 1), ("e", None)) == [
        Placement(0, 0, 3),
        Placement(1, 0, 1),
        Placement(2, 0, 2),
    ]
    assert strategy.stage("d").blocks == ["c", "d"]
    with pytest.raises(AssertionError, match="Unknown block x"):
        strategy.stage("x")
    with pytest.raises(AssertionError, match=r"Unknown Block 'x' list of expected Blocks: \['a', 'b', 'c', 'd', 'e'\]"):
        strategy.placement("x", 0)
    with pytest.raises(AssertionError, match="b associated with more than one stage"):
        poptorch.PipelinedExecution(poptorch.Stage("a", "b"), "b")
    with pytest.raises(AssertionError, match="Block IDs are supposed to be strings but got 1"):
        poptorch.Stage(1)


def test_phases():
    strategy = poptorch.SerialPhasedExecution(poptorch.Phase("a", "b"), [poptorch.Stage("c"), poptorch.Stage("d")], "e")
    strategy.phase(1).ipus(0, 2)
    assert places(strategy, ("b", None), ("d", None), ("e", 1)) == [
        Placement(0, 0, 0),
        Placement(1, 1, 2),
        Placement(0, 2, 1),
    ]
    assert strategy.setTensorsLiveness(poptorch.Liveness.OffChipAfterEachPhase) is strategy
    assert strategy.backendOptions()["tensors_liveness"] == poptorch.Liveness.OffChipAfterEachPhase
    with pytest.raises(AssertionError, match="Phase contains 2 stages but you provided 1 ipus"):
        strategy.phase(1).ipus(0)
    with pytest.raises(AssertionError, match="either stages or block ids"):
        poptorch.Phase("a", poptorch.Stage("b"))
    with pytest.raises(AssertionError, match="There is currently no AutoStage for PhasedExecution"):
        poptorch.SerialPhasedExecution()


def test_parallel_phases_alternate_between_even_and_odd_ipus():
    strategy = poptorch.ParallelPhasedExecution("a", "b").sendTensorsOffChipAfterFwd()
    assert strategy.backendOptions()["tensors_liveness"] == poptorch.Liveness.OffChipAfterFwd
    assert places(strategy, ("a", 0), ("b", 3))[1].ipu == 3
    with pytest.raises(AssertionError, match="even phases must run on even IPUs and odd phases on odd IPUs"):
        strategy.placement("b", 2)


def test_the_strategy_of_options_is_checked():
    with pytest.raises(AssertionError):
        poptorch.Options().setExecutionStrategy("pipelined")
    strategy = poptorch.ShardedExecution("a")
    copied = poptorch.Options().setExecutionStrategy(strategy).clone()
    assert repr(copied._execution_strategy) == repr(strategy)
