"""`openipu schedule` shows a timeline, or says why there is none."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from openipu.cli.main import COMMANDS, main


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(main, arguments)


def test_the_timeline_and_its_numbers_are_printed(run):
    result = run("schedule", "--stages", "2", "--count", "4", "--schedule", "grouped")
    assert result.exit_code == 0
    assert result.output == (
        "Grouped training, 2 stages on 2 IPUs, 4 micro-batches: 7 time slots, bubble 20.0%\n"
        "\n"
        "t    0  1  2     3     4     5  6\n"
        "IPU0 F0 F1 F2    F3+B0 B1    B2 B3 | update\n"
        "IPU1 .  F0 F1+B0 F2+B1 F3+B2 B3 .  | update\n"
        "\n"
        "Micro-batches waiting for their backward pass: stage 0: 2, stage 1: 0\n"
    )


def test_inference_has_no_backward_pass(run):
    result = run("schedule", "--stages", "2", "--count", "2", "--inference")
    assert result.exit_code == 0
    assert "B0" not in result.output and "update" not in result.output and "backward" not in result.output


def test_stages_may_share_an_ipu(run):
    result = run("schedule", "--stages", "3", "--count", "4", "--device-mapping", "0,1,0")
    assert result.exit_code == 0
    assert "3 stages on 2 IPUs" in result.output and "2:B3" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--stages", "4", "--count", "9"), "must be a multiple of 8, but it is 9."),
        (("--stages", "2", "--count", "0"), "0 is not in the range"),
        (("--stages", "2", "--count", "4", "--schedule", "zigzag"), "'zigzag' is not one of"),
        (("--stages", "2", "--count", "4", "--device-mapping", "a,b"), "must be IPU numbers"),
        (("--stages", "2", "--count", "4", "--device-mapping", "0"), "1 mappings != 2 stages"),
        (
            ("--stages", "2", "--count", "4", "--schedule", "interleaved", "--device-mapping", "0,0"),
            "does not currently support multiple pipeline stages",
        ),
        (("--stages", "2", "--count", "4", "--plot", "line.gif"), "path must end in .html, .png or .svg"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_the_reason(run, arguments, message):
    result = run("schedule", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_plot_draws_a_picture(run, tmp_path):
    path = tmp_path / "line.svg"
    result = run("schedule", "--stages", "2", "--count", "4", "--plot", str(path))
    assert result.exit_code == 0
    assert "Drawn into" in result.output and path.exists()


def test_a_directory_that_does_not_exist_is_an_error_not_a_traceback(run, tmp_path):
    result = run("schedule", "--stages", "2", "--count", "4", "--plot", str(tmp_path / "none" / "line.svg"))
    assert result.exit_code == 1
    assert "Error:" in result.output and "No such file" in result.output


def test_help_lists_all_commands(run):
    result = run("--help")
    assert result.exit_code == 0
    assert all(name in result.output and text in result.output for name, (_, text) in COMMANDS.items())


def test_listed_commands_exist(run):
    assert all(run(name, "--help").exit_code == 0 for name in COMMANDS)


def test_an_unknown_command_is_refused(run):
    assert "No such command 'shedule'" in run("shedule").output


def test_help_imports_no_command():
    code = (
        "import sys; from click.testing import CliRunner; from openipu.cli.main import main; "
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0; "
        "print([name for name in ('jax', 'numpy', 'rich', 'openipu.cli.schedule') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
