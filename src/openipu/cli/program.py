"""What commands share that run a user's program: how it is written on the command line, and what it is given."""

import json
from collections.abc import Mapping
from pathlib import Path

import click

from openipu import environment, tensorflow1


class ProgramCommand(click.Command):
    """A command whose own options end where the program begins, so that the program gets all of its own."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # pyright: ignore[reportArgumentType]
        # `-m` is Python's option, not one of ours: it arrives as the first word of the program.
        self.ignore_unknown_options = True
        self.allow_interspersed_args = False

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", "{SCRIPT | -m MODULE}", "[ARGS]..."]


def check_program(program: tuple[str, ...], command: click.Command) -> None:
    """Refuses what is no program, before anything is started."""
    name = f"openipu {command.name}"
    if not program:
        raise click.UsageError(f"Expected a program: a script, or -m and a module. Try `{name} train.py`.")
    first = program[0]
    if first == "-m":
        if len(program) < 2:
            raise click.UsageError(f"Expected the name of a module after -m. Try `{name} -m package.module`.")
    elif first.startswith("-"):
        options = [o for parameter in command.params for o in parameter.opts if o.startswith("--")]
        raise click.NoSuchOption(first, possibilities=[option for option in options if option[:4] == first[:4]])
    elif not Path(first).exists():
        raise click.UsageError(f"There is no program {first!r} in {Path.cwd()}.")


def checked_system(name: str) -> str:
    """The name of a virtual system; refused if there is none such."""
    from openipu.hardware import parse_system

    try:
        return parse_system(name).name
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--system") from None


def chosen(program: tuple[str, ...], system: str | None, sample_data: bool) -> dict[str, str]:
    """The variables that a program gets: what `--system` and `--sample-data` stand for, and its TensorFlow."""
    variables = {}
    if system is not None:
        variables["OPENIPU_SYSTEM"] = checked_system(system)
    if sample_data:
        variables["OPENIPU_DATASETS"] = "sample"
    if not environment.tensorflow1_is_decided():
        sign = _sign_of_tensorflow1(program)
        if sign is not None:
            click.echo(tensorflow1.describe(sign), err=True)
            variables["OPENIPU_TF1"] = "1"
    return variables


def _sign_of_tensorflow1(program: tuple[str, ...]) -> tensorflow1.Sign | None:
    """What says that the program is one of TensorFlow 1; a module is looked for in the current folder only."""
    if program[0] != "-m":
        return tensorflow1.sign_of_tensorflow1(Path(program[0]))
    place = Path(*program[1].split("."))
    files = (place.with_suffix(".py"), place / "__main__.py")
    return next((tensorflow1.sign_of_tensorflow1(file) for file in files if file.is_file()), None)


def with_engine_options(options: Mapping[str, str]) -> str:
    """POPLAR_ENGINE_OPTIONS as it is, with these on top."""
    return json.dumps({**environment.poplar_engine_options(), **options})


def called(program: tuple[str, ...]) -> str:
    """What a program is called in messages."""
    return program[1] if program[0] == "-m" else program[0]
