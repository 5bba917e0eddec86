"""PopTorch's batch algebra and the plan it becomes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import poptorch
from openipu.program import OutputMode, Reduction, Schedule
from openipu.torch.options import resolve
from openipu.torch.program import batching, planning

numbers = st.integers(1, 4)


def options(iterations=1, replicas=1, accumulation=1):
    made = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas)
    made.Training.gradientAccumulation(accumulation)
    return made


@settings(deadline=None)  # the machine may be busy
@given(numbers, numbers, numbers)
def test_the_core_counts_micro_batches_and_poptorch_updates(iterations, replicas, accumulation):
    plan = planning.plan_of(resolve(options(iterations, replicas, accumulation), True), True)
    assert plan.device_iterations == iterations * accumulation
    assert (plan.updates, plan.replicas, plan.gradient_accumulation) == (iterations, replicas, accumulation)
    assert plan.outputs is OutputMode.FINAL


def test_reductions():
    made = options()
    plan = planning.plan_of(made, True)
    assert (plan.accumulation_reduction, plan.replica_reduction) == (Reduction.MEAN, Reduction.MEAN)
    assert planning.plan_of(made, True, None, ("float16",)).accumulation_reduction is Reduction.RUNNING_MEAN
    made.Training.setMeanAccumulationAndReplicationReductionStrategy(poptorch.MeanReductionStrategy.Running)
    assert planning.plan_of(made, True).accumulation_reduction is Reduction.RUNNING_MEAN
    made.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
    plan = planning.plan_of(made, True)
    assert (plan.accumulation_reduction, plan.replica_reduction) == (Reduction.SUM, Reduction.SUM)


def test_inference_returns_everything_and_has_no_accumulation():
    plan = planning.plan_of(resolve(options(3, 2), False), False)
    assert (plan.device_iterations, plan.gradient_accumulation, plan.outputs) == (3, 1, OutputMode.ALL)


def test_numbers_below_one_are_refused():
    with pytest.raises(poptorch.Error, match=r"Options.deviceIterations must be at least 1. Received: 0"):
        planning.plan_of(options(0), True)


@settings(deadline=None)  # the machine may be busy
@given(numbers, numbers, numbers, st.integers(1, 3))
def test_results_of_all_micro_batches_keep_the_order_of_the_inputs(iterations, replicas, accumulation, rows):
    cut = batching.Batching(iterations, accumulation, replicas)
    batch = np.arange(cut.pieces * rows * 2.0).reshape(-1, 2)
    feed = batching.to_feed(batch, cut)
    assert feed.shape == (cut.steps, *([replicas] if replicas > 1 else []), rows, 2)
    assert np.array_equal(batching.to_result(feed, poptorch.OutputMode.All, 1, cut), batch)
    final = batching.to_result(feed, poptorch.OutputMode.Final, 1, cut)
    assert np.array_equal(final, batch[-replicas * rows :])
    total = batching.to_result(feed, poptorch.OutputMode.Sum, 1, cut)
    assert np.array_equal(total, batch.reshape(cut.steps, replicas * rows, 2).sum(0))
    mode, period = poptorch.OutputMode.EveryN, iterations
    every = batching.to_result(feed, mode, period, cut)
    assert np.array_equal(every, batch[-accumulation * replicas * rows :])
    for mode in (poptorch.OutputMode.All, poptorch.OutputMode.Final, poptorch.OutputMode.Sum):
        assert batching.to_result(feed, mode, 1, cut).shape[0] == rows * batching.multiplier(mode, 1, cut)


def test_every_nth_device_iteration():
    cut = batching.Batching(device_iterations=4, accumulation=2, replicas=2)
    feed = batching.to_feed(np.arange(16), cut)
    found = batching.to_result(feed, poptorch.OutputMode.EveryN, 2, cut)
    assert found.tolist() == [4, 5, 6, 7, 12, 13, 14, 15]
    with pytest.raises(poptorch.Error, match="Return period must be a factor"):
        batching.to_result(feed, poptorch.OutputMode.EveryN, 3, cut)
    with pytest.raises(poptorch.Error, match="Return period must be <="):
        batching.to_result(feed, poptorch.OutputMode.EveryN, 5, cut)


def test_a_scalar_loss_stays_a_scalar_or_becomes_one_per_replica():
    one = batching.Batching()
    assert batching.to_result(np.zeros((1,)), poptorch.OutputMode.Final, 1, one).shape == ()
    two = batching.Batching(device_iterations=3, replicas=2)
    assert batching.to_result(np.zeros((3, 2)), poptorch.OutputMode.Final, 1, two).shape == (2,)
    assert batching.to_result(np.zeros((3, 2)), poptorch.OutputMode.All, 1, two).shape == (6,)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(poptorch.CommGroupType.Consecutive, [0, 0, 1, 1]), (poptorch.CommGroupType.Orthogonal, [0, 1, 0, 1])],
)
def test_replicas_of_a_group_get_the_same_data(kind, expected):
    made = options(1, 4).inputReplicaGrouping(2, kind)
    cut = batching.batching_of(made, True)
    assert batching.to_feed(np.array([0, 1]), cut)[0, :, 0].tolist() == expected


def test_a_batch_that_cannot_be_cut_is_refused():
    cut = batching.Batching(device_iterations=2, accumulation=3, replicas=4)
    assert batching.micro_batch_shape((48, 5), cut) == (2, 5)
    for shape in ((10, 5), (0, 5), ()):
        with pytest.raises(AssertionError, match=r"Options.Training.gradientAccumulation\(3\) = 24 because"):
            batching.micro_batch_shape(shape, cut)
    assert batching.micro_batch_shape((), batching.Batching()) == ()


def test_pipelines_need_enough_micro_batches():
    ipus = [0, 0, 1, 2, 3]
    made = options(accumulation=6)
    with pytest.raises(
        poptorch.Error, match=r"pipeline stages \(7\).*model with 4 pipeline stages.*additional 3 stages"
    ):
        planning.pipeline_of(ipus, made, True)
    found = planning.pipeline_of(ipus, options(accumulation=7), True)
    assert (found.stages, found.device_mapping, found.schedule) == (4, (0, 1, 2, 3), Schedule.GROUPED)
    with pytest.raises(poptorch.Error, match=r"deviceIterations must be .*pipeline stages \(4\)"):
        planning.pipeline_of(ipus, options(3), False)
    sharded = options().setExecutionStrategy(poptorch.ShardedExecution())
    assert planning.pipeline_of(ipus, sharded, True).schedule is Schedule.SEQUENTIAL
    assert planning.pipeline_of([0, 0], options(), True) is None
    assert planning.stage_ipus([1, 0, 1]) == (0, 1, 0, 1)
