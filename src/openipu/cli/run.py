"""The command `openipu run`: runs a program with the variables that its options stand for."""

import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from openipu import environment
from openipu.cli.program import ProgramCommand, check_program, chosen
from openipu.environment import LEVELS


@click.command(cls=ProgramCommand)
@click.option("--system", metavar="NAME", help="The virtual system, such as bow-pod64 or 2xbow.")
@click.option("--sample-data", is_flag=True, help="Let keras.datasets and torchvision.datasets give sample data.")
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
    environment variables (docs/environment.md), so the program runs exactly as it would with those set. A program that
    was written for TensorFlow 1 is recognised, and gets that.

    \b
    Examples:
      openipu run train.py --epochs 3
      openipu run --system 4xbow --sample-data --log info train.py
      openipu run -m my_package.train
    """
    check_program(program, run)
    variables = chosen(program, system, sample_data)
    if cache is not None:
        variables["OPENIPU_CACHE"] = str(cache.absolute())
    if log is not None:
        variables["OPENIPU_LOG"] = log
    if no_progress:
        variables["OPENIPU_PROGRESS"] = "off"
    environment.quiet_libraries()
    _become([sys.executable, *program], environment.for_child(**variables))


def _become(command: list[str], variables: dict[str, str]) -> NoReturn:
    # In this process's place, so that signals, the exit code and the terminal are the program's own.
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], command, variables)
