"""Set-up from nothing: which Python is taken, and what CI leaves of a machine's pip settings."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run(*command, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "MAKE", "MFLAGS"))}
    return subprocess.run(
        command, env=environment | variables, capture_output=True, text=True, check=False, cwd=ROOT, timeout=60
    )


def test_ci_keeps_only_the_way_to_the_package_index(tmp_path):
    settings = tmp_path / "pip.conf"
    settings.write_text("[global]\nproxy = http://proxy:1\nextra-index-url = http://extra\n[install]\nno-deps = true\n")
    given = {"PIP_FIND_LINKS": "/wheels", "PIP_NO_INDEX": "1", "PIP_INDEX_URL": "http://mirror/simple"}
    done = run(".ci/plain-pip", "env", PIP_CONFIG_FILE=str(settings), PIP_CERT="/my cert", **given)
    left = dict(line.split("=", 1) for line in done.stdout.splitlines() if line.startswith("PIP_"))
    assert {name: left[name] for name in ("PIP_CONFIG_FILE", "PIP_CERT", "PIP_PROXY", "PIP_INDEX_URL")} == {
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_CERT": "/my cert",
        "PIP_PROXY": "http://proxy:1",
        "PIP_INDEX_URL": "http://mirror/simple",
    }
    assert not left.keys() & {"PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_EXTRA_INDEX_URL", "PIP_NO_DEPS"}


@pytest.fixture
def python(tmp_path):
    """`python(name, works)`: a supported interpreter or another; its venv makes only a file."""

    def make(name, works):
        script = f'[ "$1" = -c ] && exit {0 if works else 1}\n[ "$1" = --version ] && echo {name} && exit\n'
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}mkdir -p $3/bin && touch $3/bin/python\n")
        (tmp_path / name).chmod(0o755)
        return str(tmp_path / name)

    return make


def test_make_takes_the_first_python_that_works_and_says_which(python, tmp_path):
    choice = f"{tmp_path}/missing {python('old', False)} {python('good', True)} {python('later', True)}"
    done = run("make", f"PYTHON={choice}", f"VENV={tmp_path}/venv", f"{tmp_path}/venv/bin/python")
    assert done.stdout == f"Making {tmp_path}/venv with good (supported: 3.11, 3.12 or 3.13)\n", done.stderr


def test_without_a_python_make_says_so_in_one_line(python, tmp_path):
    done = run("make", f"PYTHON={python('old', False)}", f"VENV={tmp_path}/venv", "demo")
    assert done.returncode != 0 and done.stdout == ""
    said, _ = done.stderr.splitlines()  # The other is make's own.
    assert said.startswith("openipu needs Python 3.11, 3.12 or 3.13") and "make PYTHON=<path>" in said
