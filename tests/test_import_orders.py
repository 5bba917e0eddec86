"""TensorFlow and PyTorch in one process, in both orders of import, with either build of PyTorch."""

import subprocess
import sys

import pytest

USE = """
import numpy as np
import sys
import tensorflow as tf
import torch
import poptorch

x = np.arange(6, dtype=np.float32).reshape(2, 3)
layer = torch.nn.Linear(3, 2)
expected = tf.constant(x) @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
np.testing.assert_allclose(poptorch.inferenceModel(layer)(torch.tensor(x)).numpy(), expected, rtol=1e-6)
print(sys.modules.get("triton") is not None)
"""


def python(code):
    """What a program prints; a crash is shown with its stack."""
    command = [sys.executable, "-X", "faulthandler", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "triton" not in done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("first", ["torch._dynamo", "poptorch"])
def test_tensorflow_first(first):
    assert python(f"import tensorflow\nimport {first}\n" + USE) == "False"


def test_pytorch_first():
    installed = python("import importlib.util; print(importlib.util.find_spec('triton') is not None)")
    assert python("import torch._dynamo\nimport poptorch\nimport tensorflow\n" + USE) == installed


def test_looking_whether_tensorflow_is_there_takes_nothing_away():
    code = "import importlib.util, sys; importlib.util.find_spec('tensorflow'); print('triton' in sys.modules)"
    assert python(code) == "False"
