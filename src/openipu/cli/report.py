"""The command `openipu report`: runs a program and shows what real IPUs would need for it, or compares two reports."""

import contextlib
import subprocess
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from openipu import environment
from openipu.cli.program import ProgramCommand, called, check_program, chosen, with_engine_options
from openipu.errors import ReportError
from openipu.report.document import Document
from openipu.report.page import page
from openipu.report.quantities import percent_text, seconds_text, throughput_text
from openipu.report.reading import NAME, read
from openipu.report.writing import PAGE, check_folder, write_text


class _ReportCommand(ProgramCommand):
    """A program gets all options behind it; reports that are compared are no program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        left = super().parse_args(ctx, list(args))
        if not ctx.params.get("compare"):
            return left
        ctx.params.clear()
        ctx.allow_interspersed_args = True
        return super().parse_args(ctx, list(args))


@click.command(cls=_ReportCommand)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    help="Where reports go: a directory; with --compare, a file.  [default: report, or comparison.html]",
)
@click.option("--system", metavar="NAME", help="The virtual system, such as bow-pod64, mk2-pod16 or 4xmk1.")
@click.option("--sample-data", is_flag=True, help="Let keras.datasets and torchvision.datasets give sample data.")
@click.option(
    "--compare",
    is_flag=True,
    help="Run nothing: compare two reports, each a report.json or the folder of one.",
)
@click.option("--open", "show", is_flag=True, help="Open the page in a browser.")
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
def report(
    output: Path | None, system: str | None, sample_data: bool, compare: bool, show: bool, program: tuple[str, ...]
) -> None:
    """Run a program and report what real IPUs would need for it.

    Every program that is compiled for IPUs gets a folder with a page (report.html, which needs no network) and the same
    as JSON (report.json). Options come before the program.

    \b
    Examples:
      openipu report train.py --epochs 1
      openipu report --system mk2-pod16 -o mk2 train.py
      openipu report --compare before/ after/ -o comparison.html
    """
    try:
        page = _compare(program, output) if compare else _run(program, output, system, sample_data)
    except ReportError as error:
        raise click.ClickException(str(error)) from None
    if show:
        click.launch(str(page))


def _run(program: tuple[str, ...], output: Path | None, system: str | None, sample_data: bool) -> Path:
    check_program(program, report)
    folder = (output or Path("report")).absolute()
    existed = folder.exists()
    check_folder(folder)
    wish = {"autoReport.all": "true", "autoReport.directory": str(folder)}
    variables = {**chosen(program, system, sample_data), "POPLAR_ENGINE_OPTIONS": with_engine_options(wish)}
    environment.quiet_libraries()
    before = _stamps(folder)
    code = subprocess.call([sys.executable, *program], env=environment.for_child(**variables))
    found = [file for file, stamp in _stamps(folder).items() if before.get(file) != stamp]
    if found:
        reports = {file: read(file) for file in found}
        found.sort(key=lambda file: not reports[file]["program"]["training"])
        _show([(file, reports[file]) for file in found])
    elif not existed:
        with contextlib.suppress(OSError):
            folder.rmdir()
    if code:
        raise click.ClickException(f"{called(program)} ended with exit code {code}.")
    if not found:
        raise click.ClickException(
            f"{called(program)} ran to its end, but compiled no program for IPUs: there is nothing to report. Train or "
            "run a model in an IPUStrategy's scope, or with poptorch."
        )
    return found[0].with_name(PAGE)


def _compare(given: tuple[str, ...], output: Path | None) -> Path:
    if len(given) != 2:
        raise click.UsageError(
            f"--compare takes two reports. Received: {len(given)}. Try `openipu report --compare before/ after/`."
        )
    one, other = (read(path) for path in given)
    path = (output or Path("comparison.html")).absolute()
    if path.suffix.lower() != ".html":
        raise click.BadParameter(
            f"must end in .html where two reports are compared. Received: {path.name}", param_hint="--output"
        )
    check_folder(path.parent)
    write_text(path, page(one, other))
    click.echo(f"The comparison is in {path}")
    return path


def _stamps(folder: Path) -> dict[Path, int]:
    """When each report below a folder was written."""
    return {file: file.stat().st_mtime_ns for file in sorted(folder.glob(f"**/{NAME}"))}


def _show(reports: list[tuple[Path, Document]]) -> None:
    console = Console()
    target = reports[0][1]["target"]
    table = Table(
        title=f"Predicted for {target['name'].capitalize()} IPUs; the last column was measured on this machine",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    table.add_column("program", overflow="fold", min_width=16)
    for name in ("IPUs", "samples/s", "a step", "fullest tile", "fits", "here, a step"):
        table.add_column(name, justify="right", no_wrap=True)
    for _, one in reports:
        prediction, measured = one["prediction"], one["measured"] or {}
        here = measured.get("typical_seconds")
        table.add_row(
            one["program"]["name"],
            str(one["plan"]["ipus"]),
            throughput_text(prediction["throughput"]),
            seconds_text(prediction["seconds_per_step"]),
            percent_text(prediction["worst_tile_bytes"] / one["target"]["bytes_per_tile"]),
            "yes" if prediction["fits"] else "no",
            seconds_text(here / one["plan"]["device_iterations"] if here else None),
        )
    console.print()
    console.print(table)
    console.print()
    for file, one in reports:
        console.print(f"{one['program']['name']}: {file.with_name(PAGE)}", soft_wrap=True, highlight=False)
