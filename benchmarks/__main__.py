"""`make bench`: every model with every peer, several rounds in one run, the best of each, as ratios."""

import json
import pathlib
import platform
import subprocess
import sys

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.models import CASES

PEERS = ("openipu", "keras-tf spe 1", "keras-tf spe 200", "keras-jax")
RESULTS = pathlib.Path(__file__).parent / "results" / "keras.json"


def measure(key: str, peer: str, *more: str) -> dict:
    module = "benchmarks.replicas" if peer == "replicas" else "benchmarks.worker"
    command = [sys.executable, "-m", module, key, *more] if more else [sys.executable, "-m", module, key, peer]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"{peer} on {key} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def best(rounds: list[dict]) -> dict:
    return {name: min(r[name] for r in rounds) for name in rounds[0]}


def replicas(console: Console) -> dict:
    """Sixteen replicas against one device with the same total batch."""
    table = Table(title="16 replicas beside one device with the same total batch")
    for column in ("model", "total batch", "one device ms/step", "16 replicas ms/step", "ratio"):
        table.add_column(column, justify="left" if column == "model" else "right")
    figures = {}
    with console.status("measuring replicas"):
        for key, total in (("mlp128", 512), ("cnn", 256)):
            figures[key] = row = measure(key, "replicas", str(total))
            ratio = row["16"] / row["1"]
            table.add_row(CASES[key].name, str(total), f"{row['1']:.2f}", f"{row['16']:.2f}", f"{ratio:.2f}")
    console.print(table)
    return figures


@click.command()
@click.option("--rounds", default=2, show_default=True, help="Rounds over all peers; the best of each counts.")
@click.option("--only", type=click.Choice(list(CASES)), multiple=True, help="Only these models.")
def main(rounds: int, only: tuple[str, ...]) -> None:
    """Measure openipu beside stock Keras on this machine."""
    keys = only or tuple(CASES)
    console = Console(width=120)
    figures: dict = {key: {peer: [] for peer in PEERS} for key in keys}
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("measuring", total=rounds * len(keys) * len(PEERS))
        for _ in range(rounds):
            for key in keys:
                for peer in PEERS:
                    progress.update(task, description=f"{key}: {peer}")
                    figures[key][peer].append(measure(key, peer))
                    progress.advance(task)
    table = Table(title=f"Keras fit from NumPy, {platform.machine()}, best of {rounds} rounds")
    for column in (
        "model",
        "peer",
        "µs/step",
        "CPU µs/step",
        "ratio to openipu",
        "first execution s",
        "peak RSS MiB",
        "loss",
    ):
        table.add_column(column, justify="left" if column in ("model", "peer") else "right")
    summary = {}
    for key in keys:
        rows = {peer: best(figures[key][peer]) for peer in PEERS}
        ours = rows["openipu"]["us_per_step"]
        speedup = min(rows[p]["us_per_step"] for p in PEERS[1:]) / ours
        summary[key] = {"rows": rows, "speedup_over_best_peer": speedup}
        for peer, row in rows.items():
            table.add_row(
                CASES[key].name if peer == "openipu" else "", peer, f"{row['us_per_step']:.0f}",
                f"{row['cpu_us_per_step']:.0f}",
                f"{row['us_per_step'] / ours:.2f}", f"{row['first_execution_s']:.2f}",
                f"{row['peak_rss_mib']:.0f}", f"{row['loss']:.4f}",
            )  # fmt: skip
        table.add_row("", f"[bold]openipu is {speedup:.2f}x the best peer[/bold]", end_section=True)
    console.print(table)
    summary["replicas"] = replicas(console)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(summary, indent=2))
    console.print(f"Written to {RESULTS.relative_to(pathlib.Path.cwd())}")


if __name__ == "__main__":
    main()
