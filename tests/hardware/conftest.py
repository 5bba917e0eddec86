"""A pod of sixteen IPUs of its own for every test, and programs that hold some of them."""

import pytest

from openipu import hardware
from tests.holder import Holder


@pytest.fixture
def pod(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENIPU_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("OPENIPU_SYSTEM", "bow-pod16")
    yield hardware.current_system()
    for device in hardware.attached():
        hardware.detach(device)


@pytest.fixture
def programs(pod):
    """`programs(3)` starts that many at once."""
    running = []

    def start(count=1, **variables):
        new = [Holder(**variables) for _ in range(count)]
        running.extend(new)
        return [program.started() for program in new]

    yield start
    for program in running:
        program.end()
