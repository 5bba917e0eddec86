"""Functions with a `backward` of their own train as they do in torch."""

import copy

import pytest
import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

import poptorch
from openipu.errors import UnsupportedError


class TenTimes(Function):
    """The gradient of the identity, ten times too large; an argument that is no tensor."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        assert ctx.needs_input_grad == (True, False)
        return g * ctx.factor, None


class Signs(Function):
    """A straight-through estimator, in the newer style."""

    @staticmethod
    def forward(x):
        return x.sign()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x.abs() < 1)


class Split(Function):
    """Several results, one without gradient; saved results; an input without gradient, one with a wrong shape."""

    @staticmethod
    def forward(ctx, x, y, bias):
        ctx.set_materialize_grads(False)
        big, where = (x * y).exp(), (x > y).int()
        ctx.save_for_backward(big, None)
        ctx.kept = {"x": x, "name": None}
        ctx.mark_non_differentiable(where)
        return big, "text", x + y + bias, where

    @staticmethod
    def backward(ctx, g_big, g_text, g_sum, g_where):
        big, nothing = ctx.saved_tensors
        assert nothing is None and g_text is None and ctx.kept["name"] is None
        return 3 * g_big * big + g_sum, None, (g_sum * ctx.kept["x"])


class Within(Function):
    """A function that calls another one, forwards and backwards."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return TenTimes.apply(x, 2.0).tanh()

    @staticmethod
    def backward(ctx, g):
        return g * TenTimes.apply(ctx.saved_tensors[0], 3.0)


class Doubled(Function):
    """Writes its argument."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 5


ten_times = TenTimes.apply  # as programs keep it, from before the capture


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.c = (nn.Parameter(torch.randn(4, 3)) for _ in range(3))
        self.bias = nn.Parameter(torch.randn(3))

    def forward(self, x):
        big, text, added, where = Split.apply(self.a, self.b, self.bias)
        assert text == "text"
        written = self.c * 1
        Doubled.apply(written)
        parts = [
            (ten_times(self.a, 10.0) * x).sum(),
            (Signs.apply(self.b) * x).sum(),
            (big * x).sum() + (added * where).sum(),
            (Within.apply(self.c) * written).sum(),
            checkpoint(torch.tanh, self.b * x, use_reentrant=True).sum(),
        ]
        return poptorch.identity_loss(sum(parts), reduction="sum")


def test_a_function_trains_with_its_own_backward():
    model, x = Model(), torch.randn(4, 3)
    stock = copy.deepcopy(model)
    executor = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    loss, expected = executor(x), stock(x)
    expected.backward()
    torch.testing.assert_close(loss, expected.detach())
    for (name, mine), other in zip(model.named_parameters(), stock.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), (other - 0.1 * other.grad).detach(), msg=name)


class Scaled(nn.Module):
    """One weight behind a function."""

    def __init__(self, function):
        super().__init__()
        self.w, self.function = nn.Parameter(torch.ones(1)), function

    def forward(self, x):
        return poptorch.identity_loss((self.function(self.w) * x).sum(), reduction="sum")


def test_replicas_and_accumulation_reduce_the_users_gradients():
    model = Scaled(lambda w: TenTimes.apply(w, 10.0))
    options = poptorch.Options().replicationFactor(2).deviceIterations(2)
    options.Training.gradientAccumulation(2)
    executor = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=1.0))
    executor(torch.arange(8.0))
    # Two updates, each with ten times the mean of four examples.
    assert model.w.item() == 1 - 10 * 1.5 - 10 * 5.5


def test_inference_needs_no_backward():
    class Forward(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    assert poptorch.inferenceModel(Scaled(Forward.apply))(torch.ones(1)).item() == 2
    with pytest.raises(poptorch.Error, match="backward or vjp"):
        poptorch.trainingModel(Scaled(Forward.apply))(torch.ones(1))


def test_a_backward_that_cannot_be_honoured_is_refused_by_name():
    outside = nn.Parameter(torch.ones(1))

    class Reaching(TenTimes):
        @staticmethod
        def backward(ctx, g):
            return g * outside, None

    class Short(TenTimes):
        @staticmethod
        def backward(ctx, g):
            return g

    class Deciding(TenTimes):
        @staticmethod
        def backward(ctx, g):
            return (g if g.sum() > 0 else -g), None

    for function, error, text in (
        (Reaching, UnsupportedError, "backward of Reaching uses a parameter"),
        (Short, poptorch.Error, "ShortBackward returned an incorrect number of gradients"),
        (Deciding, poptorch.Error, "Python value"),
    ):
        with pytest.raises(error, match=text):
            poptorch.trainingModel(Scaled(lambda w, f=function: f.apply(w, 1.0)))(torch.ones(1))
