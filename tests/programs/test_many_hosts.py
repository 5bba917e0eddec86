"""The examples for many hosts learn under poprun, and go on after an instance has died as if it had not."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "many_hosts"
KILLER = pathlib.Path(__file__).parent / "killer.py"


def poprun(*words, **variables):
    command = [
        sys.executable,
        "-m",
        "openipu.cli.poprun",
        "--num-instances=2",
        "--num-replicas=4",
        sys.executable,
        *words,
    ]
    given = {**os.environ, "OPENIPU_DATASETS": "sample", "TF_CPP_MIN_LOG_LEVEL": "3", "OPENIPU_PROGRESS": "off"}
    return subprocess.run(
        [str(word) for word in command],
        env={**given, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def losses(output):
    """The last loss that was told, and the accuracy at the end."""
    return re.findall(r"loss:? ([\d.]+)", output)[-1], re.findall(r"test accuracy ([\d.]+)", output)[-1]


@pytest.mark.parametrize(("program", "option"), [("keras_digits.py", "--backup"), ("torch_fashion.py", "--checkpoint")])
def test_an_example_learns_and_resumes_after_the_death_of_an_instance(program, option, tmp_path):
    whole = poprun(FOLDER / program, option, tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    assert float(losses(whole.stdout)[1]) > 0.75
    # The third time that instance 1 begins to wait for data of an epoch, it is gone.
    broken = poprun(KILLER, FOLDER / program, option, tmp_path / "broken")
    assert broken.returncode == 137, broken.stderr
    assert "Instance 1 (process" in broken.stderr and "signal 9 (SIGKILL)" in broken.stderr
    resumed = poprun(FOLDER / program, option, tmp_path / "broken")
    assert resumed.returncode == 0, resumed.stderr
    assert losses(resumed.stdout) == losses(whole.stdout)
