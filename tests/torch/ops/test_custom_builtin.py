"""The custom operations of public programs, against stock torch and NumPy."""

import numpy as np
import pytest
import torch
from torch import nn

import poptorch


class Do(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


@pytest.mark.parametrize("reduction, named", [(0, "sum"), ("mean", "mean"), (2, "none")])
def test_ctc_is_the_loss_of_torch_with_its_gradient(reduction, named):
    draw = torch.Generator().manual_seed(0)
    log_probs = torch.randn(6, 2, 4, generator=draw).log_softmax(-1)
    labels = torch.randint(1, 4, (2, 3), generator=draw)
    lengths, label_lengths = torch.tensor([6, 5]), torch.tensor([3, 2])

    # All in one batch: lengths are cut along their first axis like everything else.
    def ctc(x, y):
        like = torch.zeros(2 if named == "none" else (), device=x.device)
        given = [x, y, lengths.int(), label_lengths.int()]
        return poptorch.custom_op(given, "Ctc", "ai.graphcore", 1, [like, x], {"reduction": reduction, "blank": 0})

    loss, gradient = poptorch.inferenceModel(Do(ctc))(log_probs, labels)
    source = log_probs.clone().requires_grad_()
    expected = torch.nn.functional.ctc_loss(source, labels, lengths, label_lengths, reduction=named)
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-5, atol=1e-5)
    total = torch.nn.functional.ctc_loss(source, labels, lengths, label_lengths, reduction="none")
    total = (total / label_lengths).mean() if named == "mean" else total.sum()
    (slope,) = torch.autograd.grad(total, source)
    # torch's gradient is that of the logits before the softmax; the difference vanishes when it is projected.
    torch.testing.assert_close(gradient - gradient.sum(-1, keepdim=True) * log_probs.exp(), slope, rtol=1e-4, atol=1e-5)


def suppressed(scores, boxes, count, overlap, least):
    """One example, the plain way: take the best, drop what overlaps it and has its class."""
    found, left = [], [(s, i, c) for i, row in enumerate(scores) for c, s in enumerate(row) if s > least]
    while left and len(found) < count:
        best = max(left)
        found.append(best)
        left = [o for o in left if o != best and (o[2] != best[2] or iou(boxes[o[1]], boxes[best[1]]) <= overlap)]
    return found


def iou(a, b):
    size = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0).prod()
    return size / ((a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - size)


def test_non_maximum_suppression_fills_places_and_pads_the_rest():
    draw = np.random.default_rng(0)
    corner = draw.uniform(0, 4, (2, 12, 2))
    boxes = np.concatenate([corner, corner + draw.uniform(1, 4, (2, 12, 2))], -1).astype(np.float32)
    scores = draw.uniform(0, 1, (2, 12, 2)).astype(np.float32)
    settings = {"threshold": 0.3, "scoreThreshold": 0.4, "numDetections": 20, "useGather": 1}

    def nms(s, b):
        ints = torch.zeros(2, 20, dtype=torch.int32, device=s.device)
        floats = torch.zeros(2, 20, device=s.device)
        like = [ints, floats, torch.zeros(2, 20, 4, device=s.device), ints, ints[:, 0]]
        return poptorch.custom_op([s, b], "Nms", "ai.graphcore", 1, like, settings)

    indices, values, kept, classes, counts = poptorch.inferenceModel(Do(nms))(
        torch.from_numpy(scores), torch.from_numpy(boxes)
    )
    assert counts.min() > 0 and counts.max() < 20
    for item in range(2):
        expected = suppressed(scores[item], boxes[item], 20, 0.3, 0.4)
        count = len(expected)
        assert counts[item] == count
        assert indices[item].tolist() == [i for _, i, _ in expected] + [-1] * (20 - count)
        assert classes[item].tolist() == [c for _, _, c in expected] + [2**31 - 1] * (20 - count)
        np.testing.assert_array_equal(values[item], [s for s, _, _ in expected] + [0] * (20 - count))
        np.testing.assert_array_equal(kept[item, :count], boxes[item][[i for _, i, _ in expected]])
        assert not kept[item, count:].any()


def test_a_moving_average_is_written_into_its_weight_at_every_micro_batch():
    class Momentum(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
            self.key.requires_grad_(False)

        def forward(self, x):
            factor = torch.full((1,), 0.75, device=x.device)
            given = [self.query.weight, self.key.weight, factor]
            poptorch.custom_op(given, "ExpMovAvg", "com.acme", 1, [self.key.weight])
            return poptorch.identity_loss(self.query(x) * 1.0, reduction="sum")

    model = Momentum()
    query, key = model.query.weight.detach().clone(), model.key.weight.detach().clone()
    options = poptorch.Options().deviceIterations(3)
    executor = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.5))
    executor(torch.ones(3, 2))
    for _ in range(3):
        key = 0.75 * key + 0.25 * query
        query = query - 0.5
    torch.testing.assert_close(model.key.weight.detach(), key)
    torch.testing.assert_close(model.query.weight.detach(), query)
