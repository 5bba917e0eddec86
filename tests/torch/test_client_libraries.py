"""What libraries on top of poptorch (Lightning's strategy, Optimum, PyG's companion) reach for."""

import importlib
import subprocess
import sys

import pytest
import torch
from torch import nn

import poptorch
from poptorch._impl import _restoreWrapperIfNecessary, rewrapModelIfNecessary, unwrapModelIfNecessary
from poptorch._utils import combine_batch_tensors_gen


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def forward(self, x):
        return poptorch.identity_loss(self.layer(x).sum(), reduction="sum")


def test_an_executor_tells_whether_and_for_what_it_is_compiled():
    executor = poptorch.inferenceModel(Net())
    assert executor._executable is None and executor._executable_inputs is None
    executor(torch.ones(3, 2))
    assert executor._executable is not None
    (x,) = executor._executable_inputs.args
    assert x.shape == (3, 2) and not executor._executable_inputs.kwargs
    assert '"type": "Gemm"' in executor._debugGetPopartIR() or '"type": "MatMul"' in executor._debugGetPopartIR()


def test_the_wrapping_of_a_module_comes_off_and_on_again():
    model = Net()
    executor = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0))
    before = model.layer.weight.detach().clone()
    executor(torch.ones(3, 2))
    unwrapModelIfNecessary(model)
    assert type(model) is Net and type(model.layer.weight) is nn.Parameter
    torch.testing.assert_close(model.layer.weight.detach(), before - 3)
    rewrapModelIfNecessary(model)
    assert type(model).__name__ == "PoptorchNet"
    executor(torch.ones(3, 2))
    torch.testing.assert_close(model.layer.weight.detach(), before - 6)
    assert _restoreWrapperIfNecessary(model) is model and _restoreWrapperIfNecessary(3) == 3
    plain = Net()
    unwrapModelIfNecessary(plain), rewrapModelIfNecessary(plain)
    assert type(plain) is Net


def test_modules_that_libraries_import_hold_the_same_objects():
    executor = importlib.import_module("poptorch._poplar_executor")
    assert executor.PoplarExecutor is poptorch.PoplarExecutor
    assert executor._OverwriteContextManager is poptorch._OverwriteContextManager
    assert poptorch._logging.logger is poptorch.logger
    assert not poptorch.poptorch_core.isCompilingWithDispatcher()
    batches = [[torch.ones(1), torch.zeros(2, 3)], [torch.ones(2), torch.ones(1, 3)]]
    assert [tuple(t.shape) for t in combine_batch_tensors_gen(batches)] == [(3,), (3, 3)]


PACKAGES = {
    "broken": "import a_package_that_is_missing",
    "foreign": "registerCustomArgParsers = 3",
    "sound": """
import torch
from poptorch._poplar_executor import _OverwriteContextManager

class Overrides:
    def replace(self):
        self.held, torch.special.helper = getattr(torch.special, "helper", None), lambda x: x * 7

    def restore(self):
        torch.special.helper = self.held

_OverwriteContextManager.registerSubsitutionManager(Overrides)
_OverwriteContextManager.registerSubsitutionManager(Overrides)
def registerCustomArgParsers():
    print("registered")
""",
}
USE = """
import poptorch, torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.special.helper(x) if hasattr(torch.special, "helper") else x

print(poptorch.inferenceModel(Model())(torch.ones(1)).item())
"""


@pytest.mark.parametrize("kind", PACKAGES)
def test_a_companion_package_registers_its_overrides_or_is_left_out_with_a_warning(kind, tmp_path, monkeypatch):
    (tmp_path / "poptorch_geometric.py").write_text(PACKAGES[kind])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    done = subprocess.run([sys.executable, "-c", USE], capture_output=True, text=True, check=True, timeout=120)
    if kind == "sound":
        assert done.stdout.split() == ["registered", "7.0"]
    else:
        assert done.stdout.split() == ["1.0"]
        assert "poptorch_geometric is installed but cannot be used" in done.stderr
