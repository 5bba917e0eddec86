"""`openipu doctor` says what is there, what is missing, and exits with 1 when something is broken."""

import importlib.metadata
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from openipu.cli.main import main
from openipu.environment.variable import declared


@pytest.fixture
def run(monkeypatch):
    for variable in declared():
        if not variable.name.startswith(("OPENIPU_RUNTIME", "OPENIPU_CONFIG")):
            monkeypatch.delenv(variable.name, raising=False)

    def invoke(**variables):
        result = CliRunner(env={"COLUMNS": "200", **variables}).invoke(main, ["doctor"])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, result.output

    return invoke


@pytest.fixture
def pretend(monkeypatch):
    """Lets installed packages have other versions, or none."""
    real = importlib.metadata.version

    def change(**versions):
        def version(name):
            answer = versions[name] if name in versions else real(name)
            if answer is None:
                raise importlib.metadata.PackageNotFoundError(name)
            return answer

        monkeypatch.setattr(importlib.metadata, "version", version)

    return change


def test_this_machine_is_in_order_and_no_framework_is_imported():
    code = (
        "import sys; from openipu.cli.main import main\n"
        "try:\n    main(['doctor'])\n"
        "finally:\n    print([name for name in ('tensorflow', 'keras', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "COLUMNS": "200"}, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Everything is in order." in done.stdout and done.stdout.endswith("[]\n")
    for name in ("jax", "jaxlib", "tensorflow", "keras", "tf-keras", "torch"):
        assert f"{name} {importlib.metadata.version(name)}" in done.stdout
    assert "import hook      active" in done.stdout and "bow-pod16: 16 IPUs" in done.stdout


def test_what_is_not_installed_is_told_with_the_command_and_is_no_fault(run, pretend):
    pretend(torch=None)
    code, output = run()
    assert code == 0 and "not installed: torch" in output and "pip install 'openipu[torch]'" in output


def test_without_any_front_end_no_program_runs(run, pretend):
    pretend(torch=None, keras=None)
    code, output = run()
    assert code == 1 and "neither TensorFlow nor PyTorch" in output


def test_a_version_that_does_not_fit_is_a_fault(run, pretend):
    pretend(jax="0.1.0")
    code, output = run()
    assert code == 1 and "jax 0.1.0 does not fit" in output and "1 thing(s) to repair" in output


def test_a_missing_hook_is_a_fault(run, monkeypatch):
    monkeypatch.delitem(sys.modules, "openipu._hook", raising=False)
    code, output = run()
    assert code == 1 and "openipu_hook.pth was not read" in output


@pytest.mark.parametrize(
    ("variables", "code", "message"),
    [
        ({"OPENIPU_SYSTEM": "2xbow"}, 0, "2xbow: 2 IPUs of kind bow, 1472 tiles each (from OPENIPU_SYSTEM)"),
        ({"OPENIPU_SYSTEM": "2xzx"}, 1, "OPENIPU_SYSTEM must be one of"),
        ({"OPENIPU_PROGRES": "on"}, 0, "Did you mean OPENIPU_PROGRESS?"),
        ({"OPENIPU_PROGRESS": "maybe"}, 1, "OPENIPU_PROGRESS must be one of: auto, on, off"),
        ({"TF_POPLAR_FLAGS": "--use_ipu_modle"}, 1, "Received: '--use_ipu_modle'"),
        ({"TF_POPLAR_FLAGS": "--help"}, 0, "TF_POPLAR_FLAGS has --help"),
        ({"POPLAR_ENGINE_OPTIONS": "x"}, 1, "POPLAR_ENGINE_OPTIONS must be a JSON object"),
        ({"OPENIPU_CACHE": "/proc/nowhere/cache"}, 1, "Set OPENIPU_CACHE to another."),
    ],
)
def test_variables_are_checked(run, variables, code, message):
    found, output = run(**variables)
    assert message in output
    assert found == code


def test_folders_are_tried_and_left_as_they_were(run, tmp_path):
    code, output = run(OPENIPU_CACHE=str(tmp_path / "made" / "later"))
    assert code == 0 and "later, will be made" in output
    assert list(tmp_path.iterdir()) == []
