"""`openipu cache`: what is in the folders of compiled executables, whether it is whole, and what may go."""

import re
import time
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from openipu import environment
from openipu.compiler import cache as caches
from openipu.compiler.cache_file import BadEntry
from openipu.hardware.processes import printable

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}
_TIMES = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class _Amount(click.ParamType):
    """A number with a unit."""

    def __init__(self, name: str, units: dict[str, int], example: str) -> None:
        self.name = name
        self._units = units
        self._example = example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]?)(?:i?b)?", value.strip().lower())
        if found is None or found[2] not in self._units:
            self.fail(f"expected a {self.name} such as {self._example}. Received: {value!r}.", param, ctx)
        return float(found[1]) * self._units[found[2]]


SIZE = _Amount("size", _UNITS, "500M or 2G")
AGE = _Amount("time", _TIMES, "12h or 30d")
_folder = click.option(
    "--folder", "folders", multiple=True, type=click.Path(path_type=Path), help="The folder; several are possible."
)


@click.group(invoke_without_command=True)
@_folder
@click.pass_context
def cache(context: click.Context, folders: tuple[Path, ...]) -> None:
    """Show the executables that programs find instead of compiling.

    Without --folder, the folders are those of TF_POPLAR_FLAGS=--executable_cache_path=..., POPTORCH_CACHE_DIR and
    OPENIPU_CACHE.

    \b
    Example:
      OPENIPU_CACHE=~/.cache/openipu openipu cache
      openipu cache --folder ~/.cache/openipu prune --larger-than 2G --older-than 30d
    """
    context.obj = [folder.expanduser() for folder in folders] or _folders()
    if context.invoked_subcommand is None:
        _list(context.obj)


@cache.command()
@click.pass_obj
def verify(folders: list[Path]) -> None:
    """Read every executable and check its hash; the exit code is 1 if one is broken.

    \b
    Example:
      openipu cache --folder ~/.cache/openipu verify
    """
    broken = 0
    for folder in folders:
        paths, bad = caches.entries(folder), 0
        for path in paths:
            try:
                caches.check(path)
            except (BadEntry, OSError, RuntimeError) as error:
                bad += 1
                click.echo(f"{path}: {error}")
        click.echo(f"{folder}: {len(paths)} executables, {bad} broken")
        broken += bad
    if broken:
        click.echo("Broken executables are compiled again when they are needed; they can be deleted.")
        raise SystemExit(1)


@cache.command()
@click.option("--larger-than", "largest", type=SIZE, help="Delete the least recently used until the rest is smaller.")
@click.option("--older-than", "oldest", type=AGE, help="Delete what was not used for so long.")
@click.pass_obj
def prune(folders: list[Path], largest: float | None, oldest: float | None) -> None:
    """Delete executables that were not used for long, or that are too many.

    \b
    Example:
      openipu cache prune --larger-than 500M
    """
    if largest is None and oldest is None:
        raise click.UsageError("Say what may go: --larger-than SIZE, --older-than TIME, or both.")
    for folder in folders:
        deleted = caches.prune(folder, None if largest is None else int(largest), oldest)
        click.echo(f"{folder}: {len(deleted)} deleted, {len(caches.entries(folder))} kept")


def _folders() -> list[Path]:
    named = (
        environment.poplar_flags().executable_cache_path,
        environment.poptorch_cache_dir(),
        environment.cache_dir(),
    )
    found = list(dict.fromkeys(Path(name).expanduser() for name in named if name))
    if not found:
        raise click.UsageError(
            "No folder of executables is set. Set OPENIPU_CACHE, TF_POPLAR_FLAGS=--executable_cache_path=... or "
            "POPTORCH_CACHE_DIR, or give --folder."
        )
    return found


def _list(folders: list[Path]) -> None:
    console = Console()
    for folder in folders:
        paths = caches.entries(folder)
        total = sum(path.stat().st_size for path in paths)
        console.print(f"{folder}: {len(paths)} executables, {_size(total)}", highlight=False)
        if not paths:
            continue
        table = Table(box=box.SIMPLE)
        for title in ("Program", "For", "Size", "Compiled", "Last used", "Key"):
            table.add_column(title, no_wrap=title != "Program", overflow="fold")
        for path in paths:
            table.add_row(*_row(path))
        console.print(table)


def _row(path: Path) -> tuple[str, ...]:
    status = path.stat()
    kind = "PopTorch" if path.suffix == caches.POPTORCH else "TensorFlow"
    try:
        header = caches.check(path)
        name, seconds = escape(printable(str(header["name"]))), f"{header['seconds']:.1f} s"
    except (BadEntry, OSError, RuntimeError, LookupError, TypeError, ValueError):
        name, seconds = "[red]broken[/red]", ""
    return name, kind, _size(status.st_size), seconds, _date(status.st_mtime), path.stem[:8]


def _date(moment: float) -> str:
    """Day and time of this year's, the day of others."""
    then = time.localtime(moment)
    return time.strftime("%m-%d %H:%M" if then.tm_year == time.localtime().tm_year else "%Y-%m-%d", then)


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
