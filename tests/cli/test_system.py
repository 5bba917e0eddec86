"""`openipu system` shows the virtual pod and chooses another."""

import pytest

from openipu import hardware, settings
from openipu.cli.main import main
from openipu.hardware.system import pod_names


@pytest.fixture
def system(call):
    return lambda *arguments, **options: call(main, "system", *arguments, **options)


def test_it_shows_the_pod_and_who_holds_it(system, program):
    program.tell("acquire 4")
    output = system().output
    assert "bow-pod16 (virtual), from the default" in output
    assert "16 virtual bow IPUs: 12 free, 4 held" in output
    assert f"{hardware.BOW.tiles} tiles" in output and "1.85 GHz" in output
    assert any(line.split()[:2] == ["0-3", str(program.pid)] for line in output.splitlines())
    for name in pod_names():
        assert name in output
    assert all(len(line) <= 80 for line in output.splitlines())


def test_a_choice_lasts_until_it_is_reset(system):
    assert system("use", "MK2-pod4").exit_code == 0
    assert hardware.current_system() == hardware.parse_system("mk2-pod4")
    assert f"mk2-pod4 (virtual), from {settings.path()}" in " ".join(system(columns=200).output.split())
    assert "programs find bow-pod16" in system("reset").output
    assert hardware.current_system().name == "bow-pod16"
    assert "Nothing was chosen" in system("reset").output


def test_the_variable_goes_before_the_choice(system, monkeypatch):
    monkeypatch.setenv("OPENIPU_SYSTEM", "2xbow")
    result = system("use", "mk2-pod4")
    assert result.exit_code == 0 and "OPENIPU_SYSTEM=2xbow is set and goes before it" in result.output
    assert hardware.current_system().name == "2xbow"
    monkeypatch.delenv("OPENIPU_SYSTEM")
    assert hardware.current_system().name == "mk2-pod4"


def test_a_name_that_is_none_is_refused_and_the_choice_kept(system):
    system("use", "4xmk1")
    result = system("use", "bow-pod5")
    assert result.exit_code == 1 and "bow-pod64" in result.output and "'bow-pod5'" in result.output
    assert hardware.current_system().name == "4xmk1"


@pytest.mark.parametrize("content", ["{", "[]", '{"system": 4}', '{"system": "bow-pod5"}', "\xff"])
def test_a_broken_file_is_said_and_can_be_reset(system, content):
    settings.path().parent.mkdir()
    settings.path().write_bytes(content.encode("latin-1"))
    result = system()
    assert result.exit_code == 1 and result.output.startswith("Error: ") and str(settings.path()) in result.output
    assert system("reset").exit_code == 0
    assert hardware.current_system().name == "bow-pod16"


def test_other_settings_are_kept(system):
    settings.path().parent.mkdir()
    settings.path().write_text('{"colour": "blue"}')
    system("use", "4xmk1")
    system("reset")
    assert "blue" in settings.path().read_text()
