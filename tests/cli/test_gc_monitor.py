"""`gc-monitor` shows the virtual IPUs and who holds them."""

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import psutil
import pytest

from openipu import hardware
from openipu.cli.gc_monitor import main


def row(output, first):
    """The cells of the table row that begins with `first`."""
    for line in output.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == str(first):
            return cells
    raise AssertionError(output)


def test_a_program_in_another_process_is_shown_while_it_holds_ipus(program, piped):
    program.tell("attach 25")
    cells = row(piped("gc_monitor").stdout, program.pid)
    assert cells[1].startswith(Path(sys.executable).name)
    assert cells[3:6] == [psutil.Process().username(), "4-7", "1850MHz"]
    assert cells[6].endswith("%") and cells[7].endswith("MiB")
    program.kill()
    result = piped("gc_monitor")
    assert "No attached processes in partition bow-pod16 (virtual)" in result.stdout and not result.stderr


def test_the_cards_are_stable_and_obviously_virtual(call):
    output = call(main).output
    assert "Partition: bow-pod16 [active] has 16 virtual IPUs" in output
    cards = [line.strip("|").split("|") for line in output.splitlines() if line.endswith("|") and "DNC" in line]
    assert [int(card[4]) for card in cards] == list(range(16))
    assert [int(card[5]) for card in cards] == [3, 2, 1, 0] * 4
    assert len({card[1] for card in cards}) == 4
    assert all("virtual" in card[1] and "virtual" in card[3] for card in cards)
    assert call(main).output == output
    assert "DNC" not in call(main, "--no-card-info").output


@pytest.mark.parametrize("system", ["bow-pod64", "mk1-pod4", "3xc600"])
def test_every_kind_of_pod_has_a_table(call, monkeypatch, system):
    monkeypatch.setenv("OPENIPU_SYSTEM", system)
    result = call(main)
    assert result.exit_code == 0
    assert result.output.count("DNC") == hardware.current_system().count


@pytest.mark.parametrize("columns", [40, 80, 120, 200])
def test_lines_never_exceed_the_width_that_watch_tells(call, columns):
    hardware.acquire(4)
    output = call(main, columns=columns).output
    assert {len(line) for line in output.splitlines()} == {min(columns, 140)}
    assert row(output, os.getpid()) if columns >= 80 else True


def test_the_width_in_a_pipe_is_fixed(program, piped):
    program.tell("acquire 1")
    result = piped("gc_monitor", PYTHONIOENCODING="ascii")
    assert {len(line) for line in result.stdout.splitlines()} == {120}
    assert "\x1b" not in result.stdout


def test_json_has_it_all(call, program):
    program.tell("acquire 2")
    (partition,) = json.loads(call(main, "-j").output)["partitions"]
    assert (partition["name"], partition["ipus"], len(partition["cards"])) == ("bow-pod16", 16, 16)
    (process,) = partition["processes"]
    assert (process["pid"], process["ipus"], process["device"]) == (program.pid, [0, 1], 16)
    assert process["host rss bytes"] > 2**20
    assert "cards" not in json.loads(call(main, "--json", "--no-card-info").output)["partitions"][0]


def test_other_pods_are_shown_on_request(call, program, monkeypatch):
    program.tell("acquire 2")
    monkeypatch.setenv("OPENIPU_SYSTEM", "2xbow")
    assert "bow-pod16" not in call(main).output
    output = call(main, "--all-partitions").output
    assert "No attached processes in partition 2xbow" in output
    assert row(output, program.pid)[4] == "0-1"


def test_a_broken_registry_is_a_warning(piped, tmp_path):
    (tmp_path / "runtime").mkdir()
    (tmp_path / "runtime" / "bow-pod16.json").write_text("{")
    result = piped("gc_monitor", "--no-card-info")
    assert result.returncode == 0
    assert "No attached processes" in result.stdout and "does not say who holds" in result.stderr


def test_a_registry_that_cannot_be_used_is_an_error_not_a_traceback(call, tmp_path):
    (tmp_path / "runtime").symlink_to(tmp_path)
    result = call(main)
    assert result.exit_code == 1
    assert "Error:" in result.output and "must be a directory" in result.output


def test_a_command_cannot_steer_the_terminal(call, pod):
    with subprocess.Popen(
        [sys.executable, "-c", "import openipu.hardware as h; h.acquire(1); print(); input()", "\x1b[31m\nred"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        process.stdout.readline()
        output = call(main, "--no-card-info", columns=140).output
        process.communicate(b"\n")
    assert "?[31m red" in output and "\x1b" not in output


def test_the_commands_are_installed_and_start_without_the_frameworks():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    code = "import sys\n"
    for name in ("gc-monitor", "gc-info", "gc-inventory"):
        target = project["scripts"][name]
        assert isinstance(EntryPoint(name, target, "console_scripts").load(), click.Command)
        code += f"import {target.partition(':')[0]}\n"
    code += "print(*{'jax', 'numpy', 'tensorflow', 'torch', 'keras'}.intersection(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split() == []
