"""The addons with Keras 2, in a process of its own because TensorFlow chooses its Keras once."""

import os
import subprocess
import sys
from pathlib import Path


def test_the_same_promises_with_keras_2():
    cases = [str(Path(__file__).parent / name) for name in ("cases.py", "pipeline_cases.py")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *cases],
        env={**environment, "TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}, capture_output=True, text=True,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
