"""The command `openipu schedule`: shows the timeline of a pipeline before anything is built."""

from pathlib import Path

import click
from rich.console import Console

from openipu.program import Schedule, Timeline, check_count, stash_depth, timeline
from openipu.report.timeline import plot, show, summary


@click.command()
@click.option("--stages", type=click.IntRange(min=1), required=True, help="Number of pipeline stages.")
@click.option("--count", type=click.IntRange(min=1), required=True, help="Number of micro-batches in one execution.")
@click.option(
    "--schedule",
    "name",
    type=click.Choice([schedule.value for schedule in Schedule], case_sensitive=False),
    default=Schedule.GROUPED.value,
    show_default=True,
    help="The order in which stages take micro-batches.",
)
@click.option("--inference", is_flag=True, help="Forward passes only.")
@click.option("--device-mapping", metavar="IPU,IPU,...", help="The IPU of each stage.  [default: 0,1,2,...]")
@click.option(
    "--plot",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also draw it into this file (.png, .svg or .html).",
)
def schedule(
    stages: int, count: int, name: str, inference: bool, device_mapping: str | None, path: Path | None
) -> None:
    """Show when each IPU works on which pipeline stage.

    F3 is the forward and B3 the backward pass of micro-batch 3; what is joined by + shares a time slot; a dot is an
    idle IPU. Where an IPU has several stages, 2:F3 is stage 2.
    """
    mapping = _mapping(device_mapping)
    try:
        check_count(Schedule(name), stages, count, not inference, mapping)
        line = timeline(Schedule(name), stages, count, not inference, mapping)
    except (ValueError, NotImplementedError) as error:
        raise click.UsageError(str(error)) from None
    console = Console()
    console.print(summary(line), soft_wrap=True, highlight=False, style="bold")
    console.print()
    show(line, console)
    if line.training:
        console.print()
        console.print(_stashes(line), soft_wrap=True, highlight=False)
    if path is not None:
        try:
            plot(line, path)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--plot") from None
        except (ImportError, OSError) as error:
            raise click.ClickException(str(error)) from None
        console.print(f"Drawn into {path}", soft_wrap=True, highlight=False)


def _stashes(line: Timeline) -> str:
    depths = (f"stage {stage}: {stash_depth(line.schedule, line.stages, stage)}" for stage in range(line.stages))
    return "Micro-batches waiting for their backward pass: " + ", ".join(depths)


def _mapping(text: str | None) -> list[int] | None:
    try:
        return None if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"must be IPU numbers separated by commas. Received: {text!r}. Try 0,1,1,0.", param_hint="--device-mapping"
        ) from None
