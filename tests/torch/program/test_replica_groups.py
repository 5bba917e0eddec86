"""Weights that only groups of replicas share: every group trains like a model of its own."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import poptorch
from openipu.errors import UnsupportedError
from openipu.torch.capture import grouping

PER_GROUP = poptorch.VariableRetrievalMode.OnePerGroup


class Line(nn.Module):
    def __init__(self, groups):
        super().__init__()
        torch.manual_seed(0)
        self.w = nn.Parameter(torch.randn(groups, 3))
        self.b = nn.Parameter(torch.randn(1))

    def forward(self, x):
        w = self.w if poptorch.isRunningOnIpu() else self.w[0]
        out = (x * w).sum(1) + self.b
        return out, F.mse_loss(out, torch.zeros_like(out))


def members(kind, replicas, shards):
    groups = replicas // shards
    if kind is poptorch.CommGroupType.Orthogonal:
        return [[r for r in range(replicas) if r % groups == g] for g in range(groups)]
    return [list(range(g * shards, (g + 1) * shards)) for g in range(groups)]


@pytest.mark.parametrize(
    "kind, shards, make, mean",
    [
        ("Consecutive", 2, poptorch.optim.SGD, True),
        ("Orthogonal", 2, poptorch.optim.LAMB, True),
        ("NoGrouping", 1, poptorch.optim.Adam, False),
    ],
)
def test_gradients_are_reduced_within_a_group(kind, shards, make, mean):
    kind, replicas = poptorch.CommGroupType[kind], 4
    model = Line(replicas // shards)
    start, bias = model.w.detach().clone(), model.b.detach().clone()
    options = poptorch.Options().replicationFactor(replicas).deviceIterations(2)
    reduction = poptorch.ReductionType.Mean if mean else poptorch.ReductionType.Sum
    options.Training.accumulationAndReplicationReductionType(reduction)
    # The bias, which all share, stays put, so that groups do not meet.
    optimizer = make([{"params": [model.w]}, {"params": [model.b], "lr": 0.0, "weight_decay": 0.0}], lr=0.1)
    executor = poptorch.trainingModel(model, options, optimizer)
    executor.w.replicaGrouping(kind, shards, PER_GROUP)
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))
    _, loss = executor(x)
    assert loss.shape == (replicas,)

    for group, replicas_of in enumerate(members(kind, replicas, shards)):
        w = nn.Parameter(start[group].clone())
        alone = make([w], lr=0.1) if make is poptorch.optim.LAMB else getattr(torch.optim, make.__name__)([w], lr=0.1)
        for rows in (x[:4], x[4:]):
            outs = (rows[replicas_of] * w).sum(1) + bias
            alone.zero_grad()
            # A mean divides by the number of all replicas, whatever the size of the group.
            (outs.square().sum() / (replicas if mean else 1)).backward()
            alone.step()
        torch.testing.assert_close(model.w[group].detach(), w.detach(), rtol=1e-5, atol=1e-6)
    if make is poptorch.optim.Adam:
        state = optimizer.state_dict()["ipu_state"]
        assert state["Accl1___w"].shape == model.w.shape and state["Step___w"].shape == model.w.shape[:1]
        assert state["Accl1___b"].shape == model.b.shape and state["Step___b"].shape == ()


class Slope(nn.Module):
    """A weight whose gradient is one."""

    def __init__(self, groups):
        super().__init__()
        self.w = nn.Parameter(torch.ones(groups, 1))

    def forward(self, x):
        return poptorch.identity_loss((x * self.w).sum(), reduction="sum")


def test_a_mean_over_a_group_is_its_sum_divided_by_the_number_of_all_replicas():
    model = Slope(4)
    options = poptorch.Options().replicationFactor(8)
    executor = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=1.0))
    executor.w.replicaGrouping(poptorch.CommGroupType.Consecutive, 2, PER_GROUP)
    executor(torch.ones(8, 1))
    assert model.w.flatten().tolist() == [0.75] * 4


def test_groups_predict_with_their_own_weights():
    model = Line(2)
    executor = poptorch.inferenceModel(model, poptorch.Options().replicationFactor(2))
    executor.w.replicaGrouping(poptorch.CommGroupType.NoGrouping, 1, PER_GROUP)
    x = torch.randn(2, 3)
    out, _ = executor(x)
    torch.testing.assert_close(out, (x * model.w).sum(1) + model.b)


class Deep(nn.Module):
    """A grouped weight in a sub-module."""

    def __init__(self):
        super().__init__()
        self.inner = nn.ModuleList([Line(2)])

    def forward(self, x):
        return self.inner[0](x)


def test_weights_of_sub_modules_are_grouped_by_their_names():
    model = Deep()
    executor = poptorch.inferenceModel(model, poptorch.Options().replicationFactor(2))
    executor.per_replica_params["inner.0.w"] = (poptorch.CommGroupType.NoGrouping, 1, PER_GROUP)
    x = torch.randn(2, 3)
    line = model.inner[0]
    torch.testing.assert_close(executor(x)[0], (x * line.w).sum(1) + line.b)
    assert line.w.shape == (2, 3)
    executor = poptorch.inferenceModel(model, poptorch.Options().replicationFactor(2))
    executor.per_replica_params["w"] = (poptorch.CommGroupType.NoGrouping, 1, PER_GROUP)
    with pytest.raises(poptorch.Error, match=r"no parameter w .*inner.0.w"):
        executor(x)


def test_groups_that_do_not_fit_are_refused():
    def grouped(groups, kind, shards, mode=PER_GROUP):
        executor = poptorch.inferenceModel(Line(groups), poptorch.Options().replicationFactor(4))
        executor.w.replicaGrouping(kind, shards, mode)
        return executor

    consecutive = poptorch.CommGroupType.Consecutive
    x = torch.ones(4, 3)
    with pytest.raises(poptorch.Error, match=r"first dimension of w must be .* 2"):
        grouped(3, consecutive, 2)(x)
    with pytest.raises(poptorch.Error, match=r"must divide Options.replicationFactor\(4\)"):
        grouped(2, consecutive, 3)(x)
    with pytest.raises(UnsupportedError, match="AllReplicas of w"):
        grouped(2, consecutive, 2, poptorch.VariableRetrievalMode.AllReplicas)(x)
    scalar = nn.Module()
    scalar.s = nn.Parameter(torch.tensor(1.0))
    with pytest.raises(poptorch.Error, match="Scalars cannot be passed as per-replica weight tensor values"):
        poptorch.inferenceModel(scalar).s.replicaGrouping(consecutive, 1, PER_GROUP)
    executor = grouped(2, consecutive, 2)
    executor(x)
    with pytest.raises(poptorch.Error, match="before the model is compiled"):
        executor.w.replicaGrouping(consecutive, 2, PER_GROUP)


@pytest.mark.parametrize(("kind", "groups"), [("Consecutive", (1, 1)), ("Orthogonal", (0, 1))])
def test_a_process_of_two_uses_the_slices_of_its_own_replicas(kind, groups):
    asked = {"w": (poptorch.CommGroupType[kind], 2, PER_GROUP)}
    _, found = grouping.resolve(Line(2), asked, replicas=2, processes=2, members=(1,))
    assert [grouped.groups for grouped in found.values()] == [groups]
    with pytest.raises(poptorch.Error, match=r"must divide Options.replicationFactor\(2\) \* 3 processes"):
        grouping.resolve(Line(2), {"w": (poptorch.CommGroupType[kind], 4, PER_GROUP)}, 2, 3)
