"""What a user has chosen for good: one small file that `openipu system` writes."""

import json
from pathlib import Path
from typing import Any

from openipu import environment


def path() -> Path:
    """The file (in OPENIPU_CONFIG_DIR, or else in the user's configuration directory); it need not exist."""
    chosen = environment.config_dir()
    if chosen:
        return Path(chosen).expanduser() / "config.json"
    import platformdirs

    return Path(platformdirs.user_config_dir("openipu", appauthor=False)) / "config.json"


def system_choice() -> tuple[str, str]:
    """The virtual system's name and where it comes from: OPENIPU_SYSTEM, else the user's settings, else the default."""
    name, given = environment.virtual_system()
    if given:
        return name, "OPENIPU_SYSTEM"
    if chosen := chosen_system():
        return chosen, str(path())
    return name, "the default"


def chosen_system() -> str:
    """The name of the virtual system that was chosen; empty if none was."""
    name = _load().get("system", "")
    if not isinstance(name, str):
        raise _broken(f"system={name!r}")
    return name.strip()


def choose_system(name: str) -> None:
    """Keeps the name of a virtual system for later programs."""
    _save({**_load(), "system": name})


def forget_system() -> bool:
    """Forgets the choice, whatever is in the file; whether there was one."""
    try:
        content = _load()
    except ValueError:
        path().unlink()
        return True
    if "system" not in content:
        return False
    del content["system"]
    _save(content)
    return True


def _load() -> dict[str, Any]:
    try:
        text = path().read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except UnicodeDecodeError:
        raise _broken("bytes that are no text") from None
    try:
        content = json.loads(text)
    except ValueError:
        raise _broken(repr(text[:80])) from None
    if not isinstance(content, dict):
        raise _broken(repr(text[:80]))
    return content


def _save(content: dict[str, Any]) -> None:
    file = path()
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".new")
    temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    temporary.replace(file)


def _broken(received: str) -> ValueError:
    return ValueError(
        f'{path()} must hold a JSON object such as {{"system": "bow-pod16"}}. Received: {received}. '
        "Type `openipu system reset` to begin anew."
    )
