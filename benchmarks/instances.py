"""Measure the same total work as one, two and four instances on this machine."""

import json
import os
import subprocess
import sys

import click
from rich.console import Console
from rich.table import Table

COUNTS = (1, 2, 4)


def measure(key: str, total: int) -> dict[int, dict[str, float]]:
    """The figures of a model by the number of instances."""
    found = {}
    for count in COUNTS:
        numbers = (f"--num-instances={count}", f"--num-replicas={count}", "--only-output-from-instance=0")
        program = (sys.executable, "-m", "benchmarks.instances_worker", key, str(total))
        command = [sys.executable, "-m", "openipu.cli.poprun", *numbers, *program]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
        if done.returncode:
            raise click.ClickException(f"{count} instances of {key} failed:\n{done.stderr[-3000:]}")
        found[count] = json.loads(done.stdout.strip().splitlines()[-1].partition(":")[2])
    return found


def show(names: dict[str, str], console: Console) -> dict:
    """Measure, print the table, and return the figures."""
    shown = Table(title="The same total batch as one, two and four instances of this machine")
    for column in (
        "model",
        "instances",
        "ms/step",
        "to one",
        "in collectives",
        "sent kB/step",
        "ring minimum",
        "ratio",
    ):
        shown.add_column(column, justify="left" if column == "model" else "right")
    figures = {}
    with console.status("measuring instances"):
        for key, total in (("mlp128", 512), ("cnn", 256)):
            figures[key] = found = measure(key, total)
            for count, row in found.items():
                minimum = row["bytes_minimum"]
                shown.add_row(
                    names[key] if count == 1 else "", str(count), f"{row['ms_per_step']:.2f}",
                    f"{row['ms_per_step'] / found[1]['ms_per_step']:.2f}", f"{row['collectives']:.0%}",
                    f"{row['bytes_sent'] / 1e3:.1f}", f"{minimum / 1e3:.1f}",
                    f"{row['bytes_sent'] / minimum:.2f}" if minimum else "",
                )  # fmt: skip
    console.print(shown)
    return figures
