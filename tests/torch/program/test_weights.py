"""When trained weights reach the host, and when those of the host reach the device."""

import copy
import gc
import io
import subprocess
import sys

import pytest
import torch
from torch import nn

import poptorch


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Linear(3, 2), nn.BatchNorm1d(2)
        self.register_buffer("calls", torch.zeros(1))
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, x, y=None):
        self.calls.add_(1)
        out = self.norm(self.fc(x)) * self.scale
        return (out, nn.functional.mse_loss(out, y)) if y is not None else out


@pytest.fixture(scope="module")
def trained():
    """A model and its executor, called once."""
    torch.manual_seed(0)
    model = Model()
    executor = poptorch.trainingModel(model, poptorch.Options(), poptorch.optim.SGD(model.parameters(), lr=0.1))
    executor(X, Y)
    return model, executor


X, Y = torch.randn(4, 3), torch.randn(4, 2)


def test_reading_a_weight_brings_it_home(trained):
    model, executor = trained
    held = model.fc.weight
    before = held.detach().clone()
    executor(X, Y)
    assert executor._link.newer
    assert not torch.equal(held.detach(), before)
    assert not executor._link.newer


def test_every_way_of_reading_sees_trained_values(trained):
    model, executor = trained
    ways = {
        "state_dict": lambda: model.state_dict()["fc.weight"].clone(),
        "data": lambda: model.fc.weight.data.clone(),
        "numpy": lambda: torch.from_numpy(model.fc.weight.detach().numpy().copy()),
        "text": lambda: repr(model.fc.weight),
        "forward": lambda: nn.functional.linear(X, model.fc.weight).detach(),
        "executor": lambda: executor.state_dict()["fc.weight"].clone(),
        "buffer": lambda: model.norm.running_mean.clone(),
    }
    for name, read in ways.items():
        before = read()
        executor(X, Y)
        after = read()
        assert before != after if name == "text" else not torch.equal(before, after), name


def test_the_module_keeps_its_identity(trained):
    model, executor = trained
    assert isinstance(model, Model) and type(model).__name__ == "PoptorchModel"
    assert "Poptorch" not in repr(model.fc.weight)
    assert executor.model is model
    assert list(dict(executor.named_parameters())) == ["scale", "fc.weight", "fc.bias", "norm.weight", "norm.bias"]
    assert not isinstance(executor.scale, torch.Tensor) and executor.scale.shape == (2,)
    assert executor.fc.weight is model.fc.weight
    with pytest.raises(RuntimeError, match=r"already been wrapped"):
        poptorch.trainingModel(model)


def test_copies_and_files_are_plain(trained):
    model, executor = trained
    executor(X, Y)
    copied = copy.deepcopy(model)
    assert type(copied) is Model and type(copied.fc.weight) is nn.Parameter
    assert type(copied.norm.running_mean) is torch.Tensor
    assert torch.equal(copied.fc.weight, model.fc.weight.detach())
    file = io.BytesIO()
    torch.save(model, file)
    assert b"Poptorch" not in file.getvalue()
    assert all(type(value) is torch.Tensor for value in model.state_dict().values())


def test_host_changes_reach_the_device_on_demand_only(trained):
    model, executor = trained
    executor(X, Y)
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        model.fc.weight.zero_()
    executor(X, Y)
    assert model.fc.weight.detach().abs().sum() > 0.1
    executor.load_state_dict(kept)
    _, first = executor(X, Y)
    with torch.no_grad():
        model.load_state_dict(kept)
    executor.copyWeightsToDevice()
    _, second = executor(X, Y)
    assert torch.equal(first, second)


def test_uploading_while_stale_discards_what_was_learned(trained):
    model, executor = trained
    before = model.fc.weight.detach().clone()
    executor(X, Y)
    executor.copyWeightsToDevice()
    assert torch.equal(model.fc.weight.detach(), before)


def test_inference_follows_training(trained):
    model, executor = trained
    was = model.training
    model.eval()
    inference = poptorch.inferenceModel(executor)
    for _ in range(2):
        executor(X, Y)
        expected = copy.deepcopy(model)
        torch.testing.assert_close(inference(X), expected(X).detach(), rtol=1e-5, atol=1e-5)
    inference.detachFromDevice()
    model.train(was)


def test_buffers_change_with_every_micro_batch_and_batch_norms_count_them():
    torch.manual_seed(0)
    model, stock = Model(), None
    stock = copy.deepcopy(model)
    options = poptorch.Options().deviceIterations(2)
    options.Training.gradientAccumulation(2)
    executor = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.0))
    x, y = torch.randn(16, 3), torch.randn(16, 2)
    executor(x, y)
    for part in x.chunk(4):
        stock(part)
    assert model.calls == 4
    assert model.norm.num_batches_tracked == stock.norm.num_batches_tracked == 4
    torch.testing.assert_close(model.norm.running_var, stock.norm.running_var)


def test_destroying_brings_weights_home_and_gives_classes_back():
    torch.manual_seed(0)
    model = Model()
    executor = poptorch.trainingModel(model)
    executor(X, Y)
    model.destroy()
    assert type(model) is Model and type(model.fc.weight) is nn.Parameter
    assert model.calls == 1
    assert not executor.isCompiled()
    with pytest.raises(poptorch.Error, match=r"not been compiled or has been destroyed"):
        executor.copyWeightsToHost()
    executor(X[:2], Y[:2])
    assert model.calls == 2
    del executor
    gc.collect()
    assert type(model) is Model and model.calls == 2
    poptorch.trainingModel(model)


def test_attachment():
    model = Model()
    executor = poptorch.trainingModel(model)
    assert not executor.isAttachedToDevice()
    executor.compile(X, Y)
    assert executor.isAttachedToDevice() and model.calls == 0
    with pytest.raises(poptorch.Error, match=r"already attached"):
        executor.attachToDevice()
    executor.detachFromDevice()
    with pytest.raises(poptorch.Error, match=r"not attached"):
        executor.detachFromDevice()
    executor(X, Y)
    assert executor.isAttachedToDevice() and model.calls == 1
    with pytest.raises(poptorch.Error, match=r"updatableNamedBuffers"):
        executor.copyNamedBuffersToDevice()


def test_buffers_that_replicas_would_have_to_share_are_refused():
    options = poptorch.Options().replicationFactor(2)
    with pytest.raises(poptorch.Error, match=r"broadcasting buffers"):
        poptorch.inferenceModel(Model(), options)(X)
    options = poptorch.Options().replicationFactor(2).broadcastBuffers(False)
    model = Model()
    inference = poptorch.inferenceModel(model, options)
    inference(X)
    assert model.calls == 0
    inference.copyWeightsToHost()
    assert model.calls == 1


def test_nothing_learned_is_lost_with_the_executor():
    model = Model()
    executor = poptorch.trainingModel(model)
    executor(X, Y)
    del executor
    assert type(model) is Model and model.calls == 1


def test_tensors_made_after_wrapping_are_followed_too():
    model = Model()
    executor = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1))
    model.double().float()
    executor(X, Y)
    assert model.calls == 1


def test_ipus_are_held_while_attached(monkeypatch):
    from openipu import hardware

    monkeypatch.setenv("OPENIPU_SYSTEM", "4xbow")
    gc.collect()
    before = len(hardware.attached_ipus())
    options = poptorch.Options().replicationFactor(2).broadcastBuffers(False)
    executors = [poptorch.inferenceModel(Model(), options) for _ in range(3)]
    held = 0
    with pytest.raises(poptorch.Error, match=r"Failed to acquire 2 IPU\(s\)"):
        for executor in executors:
            executor(X)
            held += 1
    assert held == (4 - before) // 2
    executors[0].detachFromDevice()
    executors[-1](X)
    for executor in executors:
        executor.destroy()
    assert len(hardware.attached_ipus()) == before


def test_a_program_that_fails_ends_with_its_own_error():
    program = """
import torch, poptorch

def main():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.LogSoftmax(1), Loss())
    executor = poptorch.trainingModel(model)
    executor.compile(torch.ones(2, 2))
    raise ValueError("mine")

class Loss(torch.nn.Module):
    def forward(self, x):
        return poptorch.identity_loss(x, "mean")

main()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.strip().endswith("ValueError: mine")
