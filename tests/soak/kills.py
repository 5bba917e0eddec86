"""Programs that are killed at a random moment: the next one finds the IPUs free and the cache sound."""

import os
import random
import subprocess
import sys
import time

VICTIM = """
import numpy as np, torch, poptorch
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear({width}, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    def forward(self, x, y):
        out = self.body(x)
        return out, torch.nn.functional.mse_loss(out, y)
model = Net()
options = poptorch.Options().enableExecutableCaching({folder!r})
options.replicationFactor(16)
executor = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.1))
x, y = torch.ones(16, {width}), torch.ones(16, 2)
for step in range({steps}):
    loss = executor(x, y)[1]
print("loss", float(loss.mean()), flush=True)
"""


def run(seed, folder):
    """One case: a program on all IPUs is killed, another one like it runs to its end."""
    draw = random.Random(seed)
    width, began = draw.randint(2, 9), time.monotonic()
    victim = _start(VICTIM.format(width=width, folder=os.path.join(folder, "cache"), steps=10**6), folder)
    time.sleep(draw.uniform(3, 12))
    victim.kill()
    victim.communicate()
    heir = _start(VICTIM.format(width=width, folder=os.path.join(folder, "cache"), steps=5), folder)
    try:
        out, _ = heir.communicate(timeout=200)
    except subprocess.TimeoutExpired:
        heir.kill()
        out = heir.communicate()[0] + "\nno end after 200 s"
    good = heir.returncode == 0 and out.startswith("loss")
    return {
        "outcome": "good" if good else "failed", "what": f"killed, width {width}", "why": "" if good else out[-300:],
        "trace": out[-3000:], "seconds": round(time.monotonic() - began, 1), "memory": 0,
    }  # fmt: skip


def _start(program, folder):
    # A pod of its own: these programs take all of its IPUs.
    environment = {**os.environ, "OPENIPU_NATIVE": "off", "OPENIPU_RUNTIME_DIR": os.path.join(folder, "pod")}
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
