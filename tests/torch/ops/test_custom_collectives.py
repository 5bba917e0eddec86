"""Collectives over replicas as custom operations, forwards and backwards, against plain sums over replicas."""

import pytest
import torch
from torch import nn

import poptorch

REPLICAS = 4
ALL = [REPLICAS, 1, REPLICAS]


def call(name, x, like=None, **attributes):
    (made,) = poptorch.custom_op([x], name, "ai.graphcore", 1, [x if like is None else like], attributes or None)
    return made


class Each(nn.Module):
    """A weight of every replica's own, a function of it, and a loss that weighs the result."""

    def __init__(self, function, shape):
        super().__init__()
        self.w = nn.Parameter(torch.randn(REPLICAS, *shape, generator=torch.Generator().manual_seed(0)))
        self.function = function

    def forward(self, factor):
        made = self.function(self.w)
        return made[None], poptorch.identity_loss((made * factor[0]).sum(), reduction="sum")


def trained(function, shape, factors):
    """What every replica computes, and the gradient of its weight."""
    model = Each(function, shape)
    start = model.w.detach().clone()
    options = poptorch.Options().replicationFactor(REPLICAS)
    options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
    executor = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=1.0))
    executor.w.replicaGrouping(poptorch.CommGroupType.NoGrouping, 1, poptorch.VariableRetrievalMode.OnePerGroup)
    made, _ = executor(factors)
    return start, made, start - model.w.detach()


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def test_all_gather_gives_every_replica_all_values_and_takes_its_own_part_of_the_gradient():
    factors = draw(REPLICAS, REPLICAS, 3)
    gather = lambda w: call("ReplicatedAllGather", w, torch.zeros(REPLICAS, 3, device=w.device))  # noqa: E731
    start, made, gradient = trained(gather, (3,), factors)
    torch.testing.assert_close(made, start.expand(REPLICAS, -1, -1))
    torch.testing.assert_close(gradient, torch.stack([factors[r, r] for r in range(REPLICAS)]))


@pytest.mark.parametrize("backwards", [False, True])
def test_all_reduce_adds_up_in_one_of_the_two_passes(backwards):
    factors = draw(REPLICAS, 3)
    # Groups of two replicas that lie two apart: 0 and 2, 1 and 3.
    grouping = {"__collectiveReplicaGrouping": [REPLICAS, 2, 2], "op": "sum", "backwards": backwards}
    start, made, gradient = trained(lambda w: call("ReplicatedAllReduceTP", w, **grouping), (3,), factors)
    summed = lambda x: x + x[[2, 3, 0, 1]]  # noqa: E731
    torch.testing.assert_close(made, start if backwards else summed(start))
    torch.testing.assert_close(gradient, summed(factors) if backwards else factors)


def test_all_to_all_exchanges_rows_and_their_gradients():
    factors = draw(REPLICAS, REPLICAS, 2)
    exchange = lambda w: call("ReplicatedAllToAll", w, __collectiveReplicaGrouping=ALL)  # noqa: E731
    start, made, gradient = trained(exchange, (REPLICAS, 2), factors)
    torch.testing.assert_close(made, start.transpose(0, 1))
    torch.testing.assert_close(gradient, factors.transpose(0, 1))


class Others(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(draw(3, 4)), nn.Parameter(draw(2, 4) + 1)

    def forward(self, index):
        a, b = self.a, self.b
        if poptorch.isRunningOnIpu():
            pairs = [poptorch.custom_op([a, b], f"L{p}Distance", "ai.graphcore", 1, [a @ b.T])[0] for p in (1, 2)]
            (rounded,) = poptorch.custom_op([a.round(), a], "AutogradProxy", "ai.graphcore", 1, [a])
            (taken,) = poptorch.custom_op(
                [a, index], "FastGatherLastDim", "poptorch.custom_ops", 1, [a[:, :2]], {"axis": -1}
            )
        else:
            pairs = [torch.cdist(a, b, p=p) for p in (1, 2)]
            rounded = a + (a.round() - a).detach()
            taken = a.gather(-1, index)
        parts = [*pairs, rounded * 3, taken * 5]
        return poptorch.identity_loss(sum(part.sum() for part in parts), reduction="sum"), *parts


def test_distances_proxies_and_gathers_are_those_of_torch():
    model, index = Others(), torch.tensor([[0, 3], [1, 1], [2, 0]])
    stock = Others()
    made = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0))(index)
    expected = stock(index)
    expected[0].backward()
    for ours, theirs in zip(made, expected, strict=True):
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-5)
    for ours, theirs in ((model.a, stock.a), (model.b, stock.b)):
        torch.testing.assert_close(ours.detach(), (theirs - theirs.grad).detach(), rtol=1e-5, atol=1e-5)


def test_a_grouping_that_does_not_fit_the_replicas_is_refused():
    model = Each(lambda w: call("ReplicatedAllToAll", w[0], __collectiveReplicaGrouping=[2, 1, 2]), (2,))
    with pytest.raises(poptorch.Error, match="must fit the 1 replicas"):
        poptorch.inferenceModel(model)(torch.ones(1, 2))
