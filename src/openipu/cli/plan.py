"""The command `openipu plan`: predicts ways to spread a training program over IPUs, and recommends one."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from openipu import environment
from openipu.cli.program import ProgramCommand, called, check_program, chosen
from openipu.report.quantities import bytes_text, percent_text, seconds_text, throughput_text

# Plans of each number of IPUs that are shown unless all are asked for.
_SHOWN = 3


class _Numbers(click.ParamType):
    """Positive numbers separated by commas."""

    name = "N,N,..."

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            numbers = [self._kind(part) for part in value.split(",")]
        except ValueError:
            numbers = [0]
        if min(numbers) <= 0:
            self.fail(f"must be positive numbers separated by commas. Received: {value!r}. Try 1,2,4.", param, ctx)
        return list(dict.fromkeys(numbers))


@click.command(cls=ProgramCommand)
@click.option("--ipus", type=_Numbers(int), default="1,2,4,16", show_default=True, help="Numbers of IPUs to plan for.")
@click.option(
    "--micro-batch",
    "factors",
    type=_Numbers(float),
    default="0.5,1,2",
    show_default=True,
    help="Micro-batches to try, in multiples of the script's.",
)
@click.option("--system", metavar="NAME", help="The virtual system, such as bow-pod64 or mk2-pod16.")
@click.option("--sample-data", is_flag=True, help="Let keras.datasets and torchvision.datasets give sample data.")
@click.option("--all", "everything", is_flag=True, help="Show all plans, not the best of each number of IPUs.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
def plan(
    ipus: list[int],
    factors: list[float],
    system: str | None,
    sample_data: bool,
    everything: bool,
    as_json: bool,
    program: tuple[str, ...],
) -> None:
    """Compare ways to spread a training program over IPUs, and recommend one.

    Runs the script until it would train for the first time, and predicts that program for each number of IPUs as
    pipeline stages x replicas, with several micro-batches and accumulations; layers are assigned to stages
    automatically. Nothing is trained. Options come before the program.

    \b
    Examples:
      openipu plan --ipus 1,2,4,16 train.py
      openipu plan --ipus 8 --micro-batch 1,2,4 --system mk2-pod16 train.py --epochs 1
    """
    check_program(program, plan)
    variables = chosen(program, system, sample_data)
    environment.quiet_libraries()
    with tempfile.TemporaryDirectory(prefix="openipu-plan-") as folder:
        output, request = Path(folder, "answer.json"), Path(folder, "request.json")
        request.write_text(json.dumps({"ipus": ipus, "factors": factors, "output": str(output)}), encoding="utf-8")
        variables["OPENIPU_PLAN"] = str(request)
        command = [sys.executable, *program]
        # What the script prints is not what was asked for, but a user wants to see why it takes its time.
        code = subprocess.call(command, env=environment.for_child(**variables), stdout=2 if as_json else None)
        if not output.exists():
            raise click.ClickException(_reason(called(program), code))
        answer = json.loads(output.read_text(encoding="utf-8"))
    if as_json:
        click.echo(json.dumps(answer, indent=1))
    else:
        _show(answer, everything)


def _reason(name: str, code: int) -> str:
    if code:
        return f"{name} ended with exit code {code} before it trained anything, so there is nothing to plan."
    return (
        f"{name} ran to its end, but trained nothing on IPUs: there is nothing to plan. Planned are Keras' fit in an "
        "IPUStrategy's scope and poptorch.trainingModel; loops of your own (strategy.run, TF 1) are only reported."
    )


def _show(answer: dict[str, Any], everything: bool) -> None:
    console = Console()
    choices, best = answer["choices"], answer["recommended"]
    table = Table(
        title=f"{answer['program']}, predicted for {answer['target'].capitalize()} IPUs",
        title_justify="left",
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    names = ("", "IPUs", "stages x\nreplicas", "micro-\nbatch", "accum.", "batch", "samples/s", "a step")
    for name in (*names, "fullest\ntile", "balance", "bubble"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_row("as is", *_cells(answer["written"]), style="dim")
    groups: dict[int, list[int]] = {}
    for number, choice in enumerate(choices):
        groups.setdefault(choice["candidate"]["ipus"], []).append(number)
    for numbers in groups.values():
        table.add_section()
        order = sorted(numbers, key=lambda n: (not choices[n]["fits"], -choices[n]["throughput"]))
        for number in order if everything else order[:_SHOWN]:
            mark, style = ("best", "bold green") if number == best else ("", "" if choices[number]["fits"] else "red")
            table.add_row(mark, *_cells(choices[number]), style=style)
    console.print()
    console.print(table)
    console.print()
    console.print("batch: samples of a weight update; fullest tile: of the memory it has.", style="dim")
    if best is None:
        need = min(choices, key=lambda choice: choice["worst_tile"])
        too_much = bytes_text(need["worst_tile"] - need["tile"])
        console.print(
            f"\nNone of these fits: the smallest needs {too_much} more than a tile has. Allow more IPUs (--ipus) or a "
            "smaller micro-batch (--micro-batch 0.25)."
        )
        return
    console.print("\nTo run the best plan, type:", style="bold")
    for line in choices[best]["type"]:
        console.print(f"  {line}", soft_wrap=True, highlight=False, markup=False)
    now, then = _batch(answer["written"]), _batch(choices[best])
    if now != then:
        console.print(
            f"\nA weight update then sees {then:,} samples instead of {now:,}: the learning rate may need a change.",
            highlight=False,
        )


def _cells(choice: dict[str, Any]) -> list[str]:
    candidate = choice["candidate"]
    single = candidate["stages"] == 1
    return [
        str(candidate["ipus"]),
        f"{candidate['stages']} x {candidate['replicas']}",
        *(f"{count:,}" for count in (candidate["micro_batch"], candidate["accumulation"], _batch(choice))),
        throughput_text(choice["throughput"]),
        seconds_text(choice["step_seconds"]),
        percent_text(choice["worst_tile"] / choice["tile"]),
        "" if single else percent_text(choice["balance"]),
        "" if single else percent_text(choice["bubble"]),
    ]


def _batch(choice: dict[str, Any]) -> int:
    candidate = choice["candidate"]
    return candidate["micro_batch"] * candidate["replicas"] * candidate["accumulation"]
