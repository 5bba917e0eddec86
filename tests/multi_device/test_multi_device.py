"""Cases that need several JAX devices, in a process of their own: the number is fixed when JAX starts."""

import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent


@pytest.mark.parametrize("cases", sorted(path.name for path in HERE.glob("*cases.py")))
def test_cases_pass_with_four_devices(cases):
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", str(HERE / cases)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=HERE.parents[1])
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
