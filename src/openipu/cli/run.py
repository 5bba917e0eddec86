"""The command `openipu run`: runs a program with the variables that its options stand for."""

import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from openipu import environment
from openipu.environment.talk import LEVELS


class _Program(click.Command):
    """A command whose own options end where the program begins, so that the program gets all of its own."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # pyright: ignore[reportArgumentType]
        # `-m` is Python's option, not one of ours: it arrives as the first word of the program.
        self.ignore_unknown_options = True
        self.allow_interspersed_args = False

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", "{SCRIPT | -m MODULE}", "[ARGS]..."]


@click.command(cls=_Program)
@click.option("--system", metavar="NAME", help="The virtual system, such as bow-pod64 or 2xbow.")
@click.option("--sample-data", is_flag=True, help="Let keras.datasets answer from the embedded sample.")
@click.option(
    "--cache", type=click.Path(file_okay=False, path_type=Path), help="Keep compiled executables in this directory."
)
@click.option("--log", type=click.Choice(LEVELS, case_sensitive=False), help="How much openipu says.")
@click.option("--no-progress", is_flag=True, help="Show no progress of compilation.")
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
def run(
    system: str | None,
    sample_data: bool,
    cache: Path | None,
    log: str | None,
    no_progress: bool,
    program: tuple[str, ...],
) -> None:
    """Run a Python program on virtual IPUs.

    Options come before the program; everything after it is the program's own. What the options say is handed over in
    environment variables (docs/environment.md), so the program runs exactly as it would with those set.

    \b
    Examples:
      openipu run train.py --epochs 3
      openipu run --system 4xbow --sample-data --log info train.py
      openipu run -m my_package.train
    """
    _check_program(program)
    variables = {}
    if system is not None:
        variables["OPENIPU_SYSTEM"] = _checked_system(system)
    if sample_data:
        variables["OPENIPU_DATASETS"] = "sample"
    if cache is not None:
        variables["OPENIPU_CACHE"] = str(cache.absolute())
    if log is not None:
        variables["OPENIPU_LOG"] = log
    if no_progress:
        variables["OPENIPU_PROGRESS"] = "off"
    environment.quiet_tensorflow()
    _become([sys.executable, *program], environment.for_child(**variables))


def _check_program(program: tuple[str, ...]) -> None:
    if not program:
        raise click.UsageError("Expected a program: a script, or -m and a module. Try `openipu run train.py`.")
    first = program[0]
    if first == "-m":
        if len(program) < 2:
            raise click.UsageError("Expected the name of a module after -m. Try `openipu run -m package.module`.")
    elif first.startswith("-"):
        raise click.NoSuchOption(first, possibilities=[f"{option}" for option in _options() if option[:4] == first[:4]])
    elif not Path(first).exists():
        raise click.UsageError(f"There is no program {first!r} in {Path.cwd()}.")


def _options() -> list[str]:
    return [name for parameter in run.params for name in parameter.opts if name.startswith("--")]


def _checked_system(name: str) -> str:
    from openipu.hardware import parse_system

    try:
        return parse_system(name).name
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--system") from None


def _become(command: list[str], variables: dict[str, str]) -> NoReturn:
    # In this process's place, so that signals, the exit code and the terminal are the program's own.
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], command, variables)
