"""`openipu run` runs a program as Python would, with the variables that its options stand for."""

import json
import os
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from openipu.cli.main import main

SHOW = """
import json, os, sys
names = ("OPENIPU_SYSTEM", "OPENIPU_DATASETS", "OPENIPU_CACHE", "OPENIPU_LOG", "OPENIPU_PROGRESS")
print(json.dumps([__name__, sys.argv, sys.path[0], {name: os.environ[name] for name in names if name in os.environ}]))
sys.exit(7)
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "shows.py"
    path.write_text(SHOW)
    return path


def start(*arguments, **options):
    command = [sys.executable, "-m", "openipu", "run", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def test_a_script_gets_its_own_arguments_and_its_exit_code_is_passed_on(program, tmp_path):
    options = ["--system", "2xBOW", "--sample-data", "--cache", "kept", "--log", "info", "--no-progress"]
    running = start(*options, program, "--system", "mine", "-m", cwd=tmp_path)
    printed, errors = running.communicate()
    assert running.returncode == 7, errors
    assert json.loads(printed) == [
        "__main__",
        [str(program), "--system", "mine", "-m"],
        str(tmp_path),
        {
            "OPENIPU_SYSTEM": "2xbow",
            "OPENIPU_DATASETS": "sample",
            "OPENIPU_CACHE": str(tmp_path / "kept"),
            "OPENIPU_LOG": "info",
            "OPENIPU_PROGRESS": "off",
        },
    ]


def test_a_module_is_found_in_the_current_folder_and_keeps_options_of_our_names(program, tmp_path):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OPENIPU_")}
    running = start("-m", "shows", "--log", "loud", cwd=tmp_path, env=clean)
    printed, errors = running.communicate()
    assert running.returncode == 7, errors
    assert json.loads(printed) == ["__main__", [str(program), "--log", "loud"], str(tmp_path), {}]


def test_an_interrupt_reaches_the_program(tmp_path):
    path = tmp_path / "waits.py"
    path.write_text(
        "import time\n"
        "try:\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    print('interrupted')\n    raise SystemExit(3)\n"
    )
    # What a shell starts in the background ignores this signal, and its children with it.
    running = start(path, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    assert running.stdout.readline() == "ready\n"
    running.send_signal(signal.SIGINT)
    assert (running.communicate()[0], running.returncode) == ("interrupted\n", 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Expected a program"),
        (("-m",), "Expected the name of a module after -m"),
        (("nowhere.py",), "There is no program 'nowhere.py'"),
        (("--sytem", "2xbow", "x.py"), "No such option '--sytem'. Did you mean '--system'?"),
        (("--system", "2xzx", "x.py"), "a count and a target, such as 2xbow"),
        (("--log", "loud", "x.py"), "'loud' is not one of 'debug'"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_reason(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").touch()
    result = CliRunner().invoke(main, ["run", *arguments])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_help_has_examples():
    for name in ("run", "doctor", "demo"):
        assert f"openipu {name}" in CliRunner().invoke(main, [name, "--help"]).output.partition("Example")[2]
