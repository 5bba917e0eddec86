"""Whatever stops an executor of PopTorch, its values are those before an execution or those after it."""

import random

import pytest
import torch

import poptorch
from openipu import hardware
from openipu.torch.executor.optimizer_state import write_state
from tests.faults import interrupting

FILES = (
    "runtime/device_engine.py", "runtime/engine.py", "runtime/resident.py", "runtime/session.py",
    "executor/executor.py", "executor/session.py", "executor/results.py", "program/weights.py",
)  # fmt: skip


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = torch.nn.Sequential(
            torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Tanh(), torch.nn.Linear(6, 2)
        )

    def forward(self, x, y=None):
        out = self.body(x)
        return out if y is None else (out, torch.nn.functional.mse_loss(out, y))


class Training:
    """A small module with optimizer state and statistics; every call gets the same batch."""

    def __init__(self, steps):
        self.model = Net()
        options = poptorch.Options().deviceIterations(steps)
        optimizer = poptorch.optim.Adam(self.model.parameters(), lr=0.01)
        self.executor = poptorch.trainingModel(self.model, options, optimizer)
        generator = torch.Generator().manual_seed(3)
        self.batch = [torch.randn(8, n, generator=generator).repeat(steps, 1) for n in (4, 2)]
        self.train(1)

    def train(self, executions):
        for _ in range(executions):
            self.executor(*self.batch)

    def state(self):
        slots = self.executor._session.optimizer_state()["ipu_state"]
        return [v.detach().clone().numpy() for v in self.model.state_dict().values()] + [
            slots[name].numpy().copy() for name in sorted(slots)
        ]

    def put(self, values):
        weights = dict(zip(self.model.state_dict(), map(torch.from_numpy, values), strict=False))
        self.model.load_state_dict(weights)
        self.executor.copyWeightsToDevice()
        now = self.executor._session.optimizer_state()
        slots = dict(zip(sorted(now["ipu_state"]), map(torch.from_numpy, values[len(weights) :]), strict=True))
        write_state(self.executor._session.compiled, {**now, "ipu_state": slots})


@pytest.fixture(params=[1])
def training(request):
    one = Training(request.param)
    yield one
    one.executor.detachFromDevice()
    assert not hardware.attached()
    one.executor.attachToDevice()
    one.train(1)
    one.executor.destroy()
    assert not hardware.attached()


@pytest.mark.parametrize("training", [1, 8], indirect=True)
def test_interrupts_at_random_moments(training):
    met = interrupting.check(training.train, training.state, training.put, random.Random(0), "MLP", 40, 0.1)
    assert max(met) > 1


def test_an_exception_at_any_line_of_an_execution(training):
    before = training.state()
    training.train(1)
    after = training.state()
    line, stopped = 1, True
    while stopped:
        training.put(before)
        stopped = interrupting.injected_at(line, lambda: training.train(1), FILES)
        found = training.state()
        assert interrupting.equal(found, before) or interrupting.equal(found, after)
        line += 4
    assert line > 100


def test_interrupts_of_inference_while_another_executor_trains(training):
    training.model.eval()
    inference = poptorch.inferenceModel(training.model)
    x = training.batch[0][:8]
    expected = inference(x)
    for number in range(20):
        stopped = interrupting.interrupted(
            lambda: [inference(x) for _ in range(50 * interrupting.MOST)], 0.003 * number
        )
        assert stopped
        torch.testing.assert_close(inference(x), expected, rtol=0, atol=0)
    training.train(1)
    torch.testing.assert_close(inference(x), training.model(x), rtol=1e-4, atol=1e-5)
    training.model.train()
    inference.destroy()
