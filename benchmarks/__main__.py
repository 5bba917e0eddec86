"""`make bench`: every model with every peer, several rounds in one run, the best of each, as ratios."""

import tempfile
from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table

from benchmarks import models, table, torch_models

KERAS = table.Suite(
    title="Keras fit from NumPy",
    module="benchmarks.worker",
    names={key: case.name for key, case in models.CASES.items()},
    peers=dict.fromkeys(models.CASES, ("openipu", "keras-tf spe 1", "keras-tf spe 200", "keras-jax")),
    file="keras.json",
)
TORCH = table.Suite(
    title="PopTorch training from its DataLoader",
    module="benchmarks.torch_worker",
    names={key: case.name for key, case in torch_models.CASES.items()},
    peers={key: ("openipu", *case.peers) for key, case in torch_models.CASES.items()},
    file="torch.json",
    # Without a C++ compiler there is none.
    optional="torch.compile",
)


def replicas(console: Console) -> dict:
    """Sixteen replicas against one device with the same total batch."""
    shown = Table(title="16 replicas beside one device with the same total batch")
    for column in ("model", "total batch", "one device ms/step", "16 replicas ms/step", "ratio"):
        shown.add_column(column, justify="left" if column == "model" else "right")
    figures = {}
    with console.status("measuring replicas"):
        for key, total in (("mlp128", 512), ("cnn", 256)):
            done = table.call("benchmarks.replicas", key, str(total))
            figures[key] = row = table.figures_of(done, f"replicas on {key}")
            ratio = row["16"] / row["1"]
            shown.add_row(KERAS.names[key], str(total), f"{row['1']:.2f}", f"{row['16']:.2f}", f"{ratio:.2f}")
    console.print(shown)
    return figures


def second_runs(suite: table.Suite, kind: str, keys: Sequence[str], console: Console) -> dict:
    """The first step of a program that compiles it, and of the next run, which finds it in the cache."""
    shown = Table(title="From imports to the end of the first step")
    for column in ("model", "first run s", "second run s", "ratio"):
        shown.add_column(column, justify="left" if column == "model" else "right")
    figures = {}
    with console.status("measuring second runs"):
        for key in keys:
            with tempfile.TemporaryDirectory() as folder:
                done = [table.call("benchmarks.first_step", kind, key, folder) for _ in range(3)]
            first, *later = [table.figures_of(d, f"first step of {key}")["seconds"] for d in done]
            second = min(later)
            figures[key] = {"first_run_s": first, "second_run_s": second}
            shown.add_row(suite.names[key], f"{first:.2f}", f"{second:.2f}", f"{first / second:.2f}")
    console.print(shown)
    return figures


@click.command()
@click.option("--rounds", default=2, show_default=True, help="Rounds over all peers; the best of each counts.")
@click.option("--only", type=click.Choice([*KERAS.names, *TORCH.names]), multiple=True, help="Only these models.")
def main(rounds: int, only: tuple[str, ...]) -> None:
    """Measure openipu beside stock Keras and stock PyTorch on this machine."""
    console = Console(width=130)
    for suite in (KERAS, TORCH):
        keys = [key for key in suite.names if not only or key in only]
        if not keys:
            continue
        summary = table.run(suite, keys, rounds, console)
        if suite is KERAS:
            summary["replicas"] = replicas(console)
        summary["second_runs"] = second_runs(suite, "keras" if suite is KERAS else "torch", keys, console)
        table.write(summary, suite.file, console)


if __name__ == "__main__":
    main()
