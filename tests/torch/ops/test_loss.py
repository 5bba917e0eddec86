"""Which loss a model is trained by."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import poptorch


class Model(nn.Module):
    """One weight vector and a loss given as a function of it and the input."""

    def __init__(self, loss):
        super().__init__()
        self.w, self.other = nn.Parameter(torch.tensor([0.5, -0.2, 0.9])), nn.Parameter(torch.ones(3))
        self.make = loss

    def forward(self, x, y):
        return self.make(self, x, y)


def change(loss, rows=4):
    """How the weight changes in one step of gradient descent with a rate of one."""
    torch.manual_seed(0)
    model = Model(loss)
    x, y = torch.rand(rows, 3), torch.rand(rows, 3)
    before = model.w.detach().clone()
    executor = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=1.0))
    executor(x, y)
    return before - model.w.detach(), before, x, y


def gradient(function, w, x, y):
    w = w.clone().requires_grad_()
    function(w, x, y).backward()
    return w.grad


CASES = {
    "what comes after the loss is not differentiated": (
        lambda m, x, y: F.mse_loss(m.w * x, y) * 5,
        lambda w, x, y: F.mse_loss(w * x, y),
    ),
    "a term added to the loss is ignored": (
        lambda m, x, y: F.mse_loss(m.w * x, y) + m.w.sum(),
        lambda w, x, y: F.mse_loss(w * x, y),
    ),
    "a loss without reduction trains as its sum": (
        lambda m, x, y: F.mse_loss(m.w * x, y, reduction="none").mean(),
        lambda w, x, y: F.mse_loss(w * x, y, reduction="sum"),
    ),
    "identity_loss names the final one": (
        lambda m, x, y: poptorch.identity_loss(F.mse_loss(m.w * x, y) * 5 + F.l1_loss(m.w * x, y), "none"),
        lambda w, x, y: F.mse_loss(w * x, y) * 5 + F.l1_loss(w * x, y),
    ),
    "identity_loss reduces": (
        lambda m, x, y: (m.w, {"loss": poptorch.identity_loss((m.w * x - y).abs(), "mean")}),
        lambda w, x, y: F.l1_loss(w * x, y),
    ),
    "a loss nobody returns does not count": (
        lambda m, x, y: (F.l1_loss(m.w * x, y), [F.mse_loss(m.w, x[0])] and F.l1_loss(m.w.detach() * 0, y * 0).shape),
        lambda w, x, y: F.l1_loss(w * x, y),
    ),
    "detach and no_grad cut gradients": (
        lambda m, x, y: F.mse_loss(m.w * x + m.w.detach() * y, y),
        lambda w, x, y: F.mse_loss(w * x + w.detach() * y, y),
    ),
    "the mean of a batch of kl_div is its sum": (
        lambda m, x, y: F.kl_div((m.w * x).log_softmax(1), y.softmax(1), reduction="batchmean"),
        lambda w, x, y: F.kl_div((w * x).log_softmax(1), y.softmax(1), reduction="sum"),
    ),
}


@pytest.mark.parametrize("title", CASES)
def test_the_backward_pass_starts_at_the_loss(title):
    loss, expected = CASES[title]
    changed, w, x, y = change(loss)
    torch.testing.assert_close(changed, gradient(expected, w, x, y), rtol=1e-5, atol=1e-6)


def test_a_model_without_loss_is_refused():
    with pytest.raises(poptorch.Error, match=r"Couldn't find a loss in graph!"):
        change(lambda m, x, y: ((m.w * x - y) ** 2).mean())


def test_two_losses_are_refused():
    with pytest.raises(poptorch.Error, match=r"Multiple independent losses found in graph"):
        change(lambda m, x, y: (F.mse_loss(m.w * x, y), F.l1_loss(m.w * x, y)))


def test_inference_may_have_any_number_of_losses():
    model = Model(lambda m, x, y: (F.mse_loss(m.w * x, y), F.l1_loss(m.w * x, y)))
    x, y = torch.rand(2, 3), torch.rand(2, 3)
    for ours, stock in zip(poptorch.inferenceModel(model)(x, y), model(x, y), strict=True):
        torch.testing.assert_close(ours, stock.detach())


def test_only_weights_that_the_loss_depends_on_and_that_want_a_gradient_change():
    model = Model(lambda m, x, y: F.mse_loss(m.w * m.frozen * x, y))
    model.frozen = nn.Parameter(torch.full((3,), 2.0), requires_grad=False)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=1.0, weight_decay=0.5)
    poptorch.trainingModel(model, optimizer=optimizer)(torch.rand(2, 3), torch.rand(2, 3))
    assert torch.equal(model.other.detach(), torch.ones(3))
    assert torch.equal(model.frozen.detach(), torch.full((3,), 2.0))
    assert not torch.equal(model.w.detach(), torch.tensor([0.5, -0.2, 0.9]))


def test_class_weights_may_be_made_in_forward():
    def loss(w, x, y):
        return F.cross_entropy(w * x, y.argmax(1), weight=torch.tensor([1.0, 2.0, 3.0]), label_smoothing=0.1)

    changed, w, x, y = change(lambda m, x, y: loss(m.w, x, y))
    torch.testing.assert_close(changed, gradient(loss, w, x, y), rtol=1e-5, atol=1e-6)


def test_identity_loss_runs_on_the_host():
    x = torch.rand(3, requires_grad=True)
    poptorch.identity_loss(x, "mean").backward()
    torch.testing.assert_close(x.grad, torch.full((3,), 1 / 3))
    with pytest.raises(AssertionError, match=r"Unsupported reduction type!"):
        poptorch.identity_loss(x, "max")
