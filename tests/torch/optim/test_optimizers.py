"""Optimizers on the device against those of torch, step by step."""

import copy
import io

import pytest
import torch
from torch import nn

import poptorch
from openipu.torch.optim.description import describe

STEPS = 6


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 4), nn.Linear(4, 2)
        self.loss = nn.MSELoss()

    def forward(self, x, y):
        out = self.b(torch.tanh(self.a(x)))
        return out, self.loss(out, y)


def pair():
    torch.manual_seed(3)
    model = Model()
    return model, copy.deepcopy(model)


def batch(rows=8):
    generator = torch.Generator().manual_seed(5)
    return torch.randn(rows, 5, generator=generator), torch.randn(rows, 2, generator=generator)


def assert_steps_agree(ours, executor, stock, step, steps=STEPS, tolerance=1e-5):
    x, y = batch()
    for number in range(steps):
        _, loss = executor(x, y)
        expected = step(stock, x, y)
        assert torch.allclose(loss, expected, rtol=1e-5, atol=1e-6), number
        for mine, other in zip(ours.parameters(), stock.parameters(), strict=True):
            # Relative to the tensor: optimizers that divide by the gradient's size enlarge the rounding of tiny ones.
            assert (mine.detach() - other.detach()).norm() <= tolerance * other.detach().norm(), number


def stepping(optimizer, clip=None):
    def step(model, x, y):
        optimizer.zero_grad()
        loss = model(x, y)[1]
        loss.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        return loss.detach()

    return step


SAME = {
    "sgd": ("SGD", {"lr": 0.1}),
    "sgd_decay": ("SGD", {"lr": 0.1, "weight_decay": 0.05}),
    "sgd_momentum": ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    "sgd_nesterov": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "adam": ("Adam", {"lr": 0.01, "weight_decay": 0.02}),
    "adamw": ("AdamW", {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1}),
    # With its own epsilon RMSprop enlarges the rounding of tiny gradients beyond the tolerance, in stock torch as well.
    "rmsprop": ("RMSprop", {"lr": 0.01, "weight_decay": 0.01, "eps": 1e-3}),
    "rmsprop_momentum_centered": ("RMSprop", {"lr": 0.01, "momentum": 0.5, "centered": True}),
}


@pytest.mark.parametrize("name", SAME)
def test_poptorch_optimizers_step_like_torch(name):
    kind, arguments = SAME[name]
    ours, stock = pair()
    extra = {"loss_scaling": 128.0} if name in ("adam", "sgd_momentum") else {}
    executor = poptorch.trainingModel(
        ours, optimizer=getattr(poptorch.optim, kind)(ours.parameters(), **arguments, **extra)
    )
    assert_steps_agree(ours, executor, stock, stepping(getattr(torch.optim, kind)(stock.parameters(), **arguments)))


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_torch_optimizers_are_taken_as_they_are(kind):
    ours, stock = pair()
    executor = poptorch.trainingModel(ours, optimizer=getattr(torch.optim, kind)(ours.parameters(), lr=0.05))
    assert_steps_agree(ours, executor, stock, stepping(getattr(torch.optim, kind)(stock.parameters(), lr=0.05)))


def test_lamb_steps_on_the_device_as_on_the_host():
    ours, stock = pair()
    arguments = {"lr": 0.05, "weight_decay": 0.02, "max_weight_norm": 1.5}
    executor = poptorch.trainingModel(ours, optimizer=poptorch.optim.LAMB(ours.parameters(), **arguments))
    assert_steps_agree(ours, executor, stock, stepping(poptorch.optim.LAMB(stock.parameters(), **arguments)))


def test_rmsprop_has_the_variant_of_tensorflow():
    ours, stock = pair()
    optimizer = poptorch.optim.RMSprop(ours.parameters(), lr=0.01, momentum=0.5, use_tf_variant=True)
    squares = [torch.ones_like(p) for p in stock.parameters()]
    moments = [torch.zeros_like(p) for p in stock.parameters()]

    def step(model, x, y):
        model.zero_grad()
        loss = model(x, y)[1]
        loss.backward()
        with torch.no_grad():
            for p, s, b in zip(model.parameters(), squares, moments, strict=True):
                s.mul_(0.99).add_(0.01 * p.grad**2)
                b.mul_(0.5).add_(0.01 * p.grad / (s + 1e-8).sqrt())
                p -= b
        return loss.detach()

    assert_steps_agree(ours, poptorch.trainingModel(ours, optimizer=optimizer), stock, step)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_dampening_is_the_references_it_holds_at_the_first_step_and_without_momentum(momentum):
    # Torch leaves it out in both cases.
    ours, stock = pair()
    optimizer = torch.optim.SGD(ours.parameters(), lr=0.1, momentum=momentum, dampening=0.25)
    velocities = [torch.zeros_like(p) for p in stock.parameters()]

    def step(model, x, y):
        model.zero_grad()
        loss = model(x, y)[1]
        loss.backward()
        with torch.no_grad():
            for p, v in zip(model.parameters(), velocities, strict=True):
                v.mul_(momentum).add_(0.75 * p.grad)
                p -= 0.1 * v
        return loss.detach()

    assert_steps_agree(ours, poptorch.trainingModel(ours, optimizer=optimizer), stock, step, steps=2)


@pytest.mark.parametrize("first", [None, "poptorch", "torch"])
def test_an_optimizer_of_torch_replaces_the_default_or_one_of_poptorch(first):
    ours, stock = pair()
    makers = {"poptorch": poptorch.optim.SGD, "torch": torch.optim.SGD}
    given = None if first is None else makers[first](ours.parameters(), lr=0.01)
    executor = poptorch.trainingModel(ours, optimizer=given)
    x, y = batch()
    executor(x, y)
    stepping(torch.optim.SGD(stock.parameters(), lr=0.01))(stock, x, y)
    executor.setOptimizer(torch.optim.SGD(ours.parameters(), lr=0.2))
    assert_steps_agree(ours, executor, stock, stepping(torch.optim.SGD(stock.parameters(), lr=0.2)), steps=2)


def test_gradients_are_clipped_by_their_common_norm():
    ours, stock = pair()
    executor = poptorch.trainingModel(
        ours, optimizer=poptorch.optim.SGD(ours.parameters(), lr=0.5, loss_scaling=8.0, max_grad_norm=0.1)
    )
    assert_steps_agree(ours, executor, stock, stepping(torch.optim.SGD(stock.parameters(), lr=0.5), clip=0.1))


def test_groups_have_their_own_numbers_and_schedulers_need_no_compilation():
    ours, stock = pair()

    def groups(model):
        return [{"params": model.a.parameters()}, {"params": model.b.parameters(), "lr": 0.3, "momentum": 0.5}]

    optimizer = poptorch.optim.SGD(groups(ours), lr=0.1, momentum=0.9)
    other = torch.optim.SGD(groups(stock), lr=0.1, momentum=0.9)
    executor = poptorch.trainingModel(ours, optimizer=optimizer)
    schedules = [torch.optim.lr_scheduler.StepLR(o, 1, 0.5) for o in (optimizer, other)]
    x, y = batch()
    step = stepping(other)
    compiled = None
    for _ in range(4):
        executor(x, y)
        step(stock, x, y)
        compiled = compiled or executor._session.compiled
        assert executor._session.compiled is compiled
        for schedule in schedules:
            schedule.step()
        executor.setOptimizer(optimizer)
    for mine, theirs in zip(ours.parameters(), stock.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), theirs.detach(), rtol=1e-5, atol=1e-6)


def test_a_constant_or_the_kind_cannot_change_after_compilation():
    ours, _ = pair()
    executor = poptorch.trainingModel(ours, optimizer=poptorch.optim.SGD(ours.parameters(), lr=0.1))
    executor(*batch())
    with pytest.raises(poptorch.Error, match=r"constant"):
        executor.setOptimizer(poptorch.optim.SGD(ours.parameters(), lr=0.1, weight_decay=0.1))
    with pytest.raises(poptorch.Error, match=r"type of the optimizer"):
        executor.setOptimizer(poptorch.optim.Adam(ours.parameters()))
    half = poptorch.optim.SGD(ours.parameters(), lr=0.1, accum_type=torch.float16)
    with pytest.raises(ValueError, match=r"MeanReductionStrategy.Running"):
        executor.setOptimizer(half)
    executor.setOptimizer(poptorch.optim.SGD(ours.parameters(), lr=0.2))


def test_attributes_are_variable_if_they_were_given():
    model, _ = pair()
    optimizer = poptorch.optim.Adam(model.parameters(), weight_decay=0.0)
    assert optimizer.variable_attrs.isConstant("lr")
    assert not optimizer.variable_attrs.isConstant("weight_decay")
    optimizer.variable_attrs.markAsVariable("lr")
    assert "lr" not in describe(optimizer).constant
    with pytest.raises(AssertionError, match=r"Unknown attribute nothing"):
        optimizer.variable_attrs.markAsConstant("nothing")
    assert "lr" not in describe(torch.optim.Adam(model.parameters())).constant
    assert "betas" in describe(torch.optim.Adam(model.parameters())).constant


def test_what_is_no_supported_optimizer_is_refused():
    model, _ = pair()
    with pytest.raises(AssertionError, match=r"Unsupported optimizer type"):
        poptorch.trainingModel(model, optimizer=torch.optim.Adagrad(model.parameters()))
    with pytest.raises(ValueError, match=r"amsgrad"):
        poptorch.optim.Adam(model.parameters(), amsgrad=True)
    with pytest.raises(AssertionError, match=r"Accumulation types"):
        poptorch.optim.SGD(model.parameters(), lr=0.1, accum_type=torch.float64)


def test_state_is_read_from_the_device_and_loaded_again():
    ours, stock = pair()
    optimizer = poptorch.optim.Adam(ours.parameters(), lr=0.01)
    before = optimizer.state_dict()
    assert before["ipu_state"] is None and before["ipu_param"] is None and "param_groups" in before
    executor = poptorch.trainingModel(ours, optimizer=optimizer)
    x, y = batch()
    for _ in range(3):
        executor(x, y)
    state = copy.deepcopy(optimizer.state_dict())
    assert state["ipu_state"]["Step___a.weight"] == 3
    assert state["ipu_param"]["learningRate___specific___b.bias"] == pytest.approx(0.01)
    weights = ours.state_dict()
    expected = [executor(x, y)[1] for _ in range(2)]

    stock.load_state_dict(weights)
    again = poptorch.optim.Adam(stock.parameters(), lr=0.01)
    second = poptorch.trainingModel(stock, optimizer=again)
    again.load_state_dict(state)
    assert torch.allclose(torch.stack([second(x, y)[1] for _ in range(2)]), torch.stack(expected))
    with pytest.raises(RuntimeError, match=r"empty"):
        again.load_state_dict({})
    with pytest.raises(RuntimeError, match=r"Only IPU optimizer states"):
        again.load_state_dict({"state": {}, "param_groups": []})


def test_momentum_survives_detaching_and_destroying():
    ours, stock = pair()
    executor = poptorch.trainingModel(ours, optimizer=poptorch.optim.SGD(ours.parameters(), lr=0.1, momentum=0.9))
    step = stepping(torch.optim.SGD(stock.parameters(), lr=0.1, momentum=0.9))
    x, y = batch()
    for act in (executor.detachFromDevice, executor.destroy, lambda: None):
        executor(x, y)
        step(stock, x, y)
        act()
    for mine, theirs in zip(ours.parameters(), stock.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), theirs.detach(), rtol=1e-5, atol=1e-6)


def test_optimizers_are_copied_and_pickled_with_their_attributes():
    model, _ = pair()
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=0.1, loss_scaling=4.0, max_grad_norm=1.0)
    assert copy.copy(optimizer).loss_scaling == 4.0
    held = io.BytesIO()
    torch.save(optimizer, held)
    held.seek(0)
    again = torch.load(held, weights_only=False)
    assert again.max_grad_norm == 1.0 and again.param_groups[0]["lr"] == 0.1
    assert not again.variable_attrs.isConstant("lr")


def test_half_accumulators_train_a_half_model():
    torch.manual_seed(0)
    model = Model().half()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, loss_scaling=16.0, accum_type=torch.float16)
    options = poptorch.Options().deviceIterations(2)
    options.Training.gradientAccumulation(2)
    executor = poptorch.trainingModel(model, options, optimizer)
    x, y = batch(16)
    losses = [executor(x.half(), y.half())[1] for _ in range(10)]
    assert losses[0].dtype == torch.float16
    assert losses[-1] < losses[0]
    assert model.a.weight.dtype == torch.float16


def test_half_accumulators_are_averaged_as_they_come_and_the_options_say_so():
    def strategy(**settings):
        model = nn.Linear(2, 2)
        executor = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1, **settings))
        return executor.options.Training.meanAccumulationAndReplicationReductionStrategy

    assert strategy() == poptorch.MeanReductionStrategy.Post
    assert strategy(accum_type=torch.float16) == poptorch.MeanReductionStrategy.Running
    # A combined accumulator has a type of its own.
    assert strategy(accum_type=torch.float16, use_combined_accum=True) == poptorch.MeanReductionStrategy.Post


def test_attributes_added_later_are_mentioned_once(monkeypatch):
    from openipu.torch.optim import description

    said = []
    monkeypatch.setattr(description.logger, "warning", lambda *args: said.append(args[0]))
    model, _ = pair()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1)
    executor = poptorch.trainingModel(model, optimizer=optimizer)
    optimizer.param_groups[0]["initial_lr"] = 0.1
    executor.setOptimizer(optimizer)
    executor.setOptimizer(optimizer)
    assert said == ["Ignoring unexpected group 0 attribute in SGD optimizer: ['initial_lr']"]
