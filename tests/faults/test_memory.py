"""An execution that runs out of memory is an error, and nothing else has happened."""

import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
    import resource
    import numpy as np, psutil, torch, poptorch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x):
            h = self.layer(x)
            # 64 MiB and a sorted copy that cannot be computed piece by piece.
            return poptorch.identity_loss(torch.sort(h @ h.T, dim=1).values[:, ::7].tanh().mean(), reduction="none")

    model = Net()
    executor = poptorch.trainingModel(model, None, poptorch.optim.Adam(model.parameters(), lr=0.1))
    x = torch.linspace(-1, 1, 4096 * 4).reshape(4096, 4)
    executor.compile(x)
    before = model.layer.weight.detach().clone()
    held = psutil.Process().memory_info().vms
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held + 20 * 2**20, limits[1]))
    failed = None
    try:
        executor(x)
    except Exception as error:
        failed = error
    resource.setrlimit(resource.RLIMIT_AS, limits)
    print("failed" if failed is not None else "did not fail", str(failed)[:80])
    after = model.layer.weight.detach().clone()
    assert failed is None or torch.equal(after, before)
    executor(x)
    assert not torch.equal(model.layer.weight, after) and torch.isfinite(model.layer.weight).all()
    executor.detachFromDevice()
    executor.destroy()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of memory are Linux's")
def test_an_execution_without_memory_leaves_the_values_from_before_it():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.startswith("failed"), done.stdout
