"""The examples for many hosts learn under poprun, and go on after an instance has died as if it had not."""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "many_hosts"
KILLER = pathlib.Path(__file__).parent / "killer.py"


def poprun(cache, *words):
    """Two instances; what one run compiles, the next ones load."""
    launch = ("--num-instances=2", "--num-replicas=4", "--executable-cache-path", cache, sys.executable)
    command = [str(word) for word in (sys.executable, "-m", "openipu.cli.poprun", *launch, *words, "--epochs=3")]
    given = {**os.environ, "OPENIPU_DATASETS": "sample", "TF_CPP_MIN_LOG_LEVEL": "3", "OPENIPU_PROGRESS": "off"}
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=300, check=False)


def keras_weights(folder):
    """The file that `save_weights` wrote: every array in it by its path."""
    import h5py

    found = {}
    with h5py.File(folder / "trained.weights.h5") as file:
        file.visititems(lambda name, one: found.update({name: one[...]}) if isinstance(one, h5py.Dataset) else None)
    return found


def torch_weights(folder):
    """Weights and the optimizer's state of the last checkpoint."""
    import torch

    saved = torch.load(folder / "checkpoint", weights_only=False)
    assert saved["epoch"] == 2
    tensors = {**saved["model"], **saved["optimizer"]["ipu_state"]}
    return {name: np.asarray(value) for name, value in tensors.items()}


CASES = {
    "keras_digits.py": (("--backup", "state"), ("--save", "trained.weights.h5"), keras_weights),
    "torch_fashion.py": (("--checkpoint", "checkpoint"), None, torch_weights),
}


@pytest.mark.parametrize("program", CASES)
def test_an_example_learns_and_ends_with_the_same_weights_though_an_instance_died(program, tmp_path):
    state, save, weights = CASES[program]

    def words(name):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        return [word for option, file in filter(None, (state, save)) for word in (option, folder / file)]

    whole = poprun(tmp_path / "cache", FOLDER / program, *words("whole"))
    assert whole.returncode == 0, whole.stderr
    assert float(re.findall(r"test accuracy ([\d.]+)", whole.stdout)[-1]) > 0.75
    # When instance 1 begins its second epoch, it is gone.
    broken = poprun(tmp_path / "cache", KILLER, FOLDER / program, *words("broken"))
    assert broken.returncode == 137, broken.stderr
    assert "Instance 1 (process" in broken.stderr and "signal 9 (SIGKILL)" in broken.stderr
    resumed = poprun(tmp_path / "cache", FOLDER / program, *words("broken"))
    assert resumed.returncode == 0, resumed.stderr
    # It has not begun anew.
    epochs = [len(re.findall(r"[\d.]+s/epoch|epoch \d: loss|Epoch \d/3", done.stdout)) for done in (whole, resumed)]
    assert epochs == [3, 2], resumed.stdout
    expected, found = weights(tmp_path / "whole"), weights(tmp_path / "broken")
    assert expected.keys() == found.keys() and len(expected) >= 6
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6, atol=1e-6 * np.abs(value).max(), err_msg=name)
