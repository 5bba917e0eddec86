"""However a program with an asynchronous loader ends, none of its processes is left."""

import pathlib
import subprocess
import sys
import time

import psutil
import pytest

ROOT = pathlib.Path(__file__).parents[3]


UNGUARDED = """
import sys, torch, poptorch

data = torch.utils.data.TensorDataset(torch.arange(8.0))
start = {"sharing_strategy": poptorch.SharingStrategy[sys.argv[1]]}
loader = poptorch.DataLoader(poptorch.Options(), data, mode=poptorch.DataLoaderMode.Async, async_options=start)
print(len(list(loader)))
"""


@pytest.mark.parametrize("strategy", ["ForkServer", "SharedMemory"])
def test_a_program_without_a_guard_is_told_what_to_add(strategy, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    done = subprocess.run([sys.executable, str(script), strategy], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.startswith("openipu: ") and done.stderr.count('if __name__ == "__main__":') == 1
    assert len(done.stderr.splitlines()) < 20


def left(pids, patience):
    """The processes of `pids` that are still running after `patience` seconds."""
    deadline = time.monotonic() + patience
    while True:
        running = []
        for pid in pids:
            try:
                if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                    running.append(pid)
            except psutil.NoSuchProcess:
                continue
        if not running or time.monotonic() > deadline:
            return running
        time.sleep(0.1)


CASES = [
    ("end", "numbers", "1", "Fork"),
    ("fail", "numbers", "0", "Fork"),
    ("interrupt", "numbers", "1", "ForkServer"),
    ("terminate", "numbers", "1", "Fork"),
    ("kill", "numbers", "2", "ForkServer"),
    ("kill", "stuck", "0", "Fork"),
]


@pytest.fixture(scope="module")
def programs():
    """All programs, started together: most of their time is waiting."""
    command = [sys.executable, "-m", "tests.torch.data.program"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = {case: subprocess.Popen([*command, *case], cwd=ROOT, **streams) for case in CASES}
    yield started
    for program in started.values():
        with program:
            program.kill()


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_nothing_is_left(programs, case):
    output, errors = programs[case].communicate(timeout=80)
    pids = [int(pid) for pid in output.split()]
    assert len(pids) >= 1 + int(case[2]), errors
    assert (programs[case].returncode == 0) == (case[0] == "end"), errors
    # Torch's own workers look for their parent every few seconds, the fork server when its pipe closes.
    assert left(pids, 15) == []
