"""Every example runs as a user would run it, with only the dataset variable set, and learns."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
KERAS = sorted((ROOT / "examples" / "keras").glob("*.py"))
TORCH = sorted((ROOT / "examples" / "torch").glob("*.py"))
TF1 = sorted((ROOT / "examples" / "tf1").glob("*.py"))


def run(script: pathlib.Path, *command: str, **environment: str) -> str:
    """The standard output of a script, run by Python or by a command of it."""
    variables = {**os.environ, "OPENIPU_DATASETS": "sample", "TF_CPP_MIN_LOG_LEVEL": "3", **environment}
    words = [sys.executable, *command, str(script)]
    done = subprocess.run(words, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("script", KERAS, ids=lambda s: s.stem)
def test_example_learns_the_digits(script):
    accuracy = float(re.search(r"test accuracy ([\d.]+)", run(script))[1])
    assert accuracy > (0.85 if script.stem == "custom_training" else 0.9)


@pytest.mark.parametrize("script", TORCH, ids=lambda s: s.stem)
def test_torch_example_learns(script):
    reached = float(re.search(r"(?:test accuracy|digits in their place:) ([\d.]+)", run(script))[1])
    assert reached > 0.65


@pytest.mark.parametrize("script", TF1, ids=lambda s: s.stem)
def test_programs_of_tensorflow_1_learn(script):
    losses = re.findall(r"loss ([\d.]+)", run(script, "-m", "openipu", "run"))
    assert len(losses) == 3 and float(losses[2]) < min(0.75, float(losses[0]))
