"""`make bench`: every model with every peer, several rounds in one run, the best of each, as ratios."""

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence

import click
from rich.console import Console

from benchmarks import inference, instances, models, table, torch_models

_KERAS_PEERS = ("openipu", "keras-tf spe 1", "keras-tf spe 200", "keras-jax")
_TORCH_PEERS = ("openipu", "torch eager", "torch eager 1 thread", "torch.compile")
KERAS = table.Suite(
    title="Keras fit from NumPy",
    module="benchmarks.worker",
    names={key: case.name for key, case in models.CASES.items()},
    peers={
        key: _KERAS_PEERS if case.per_execution > 1 else ("openipu", "keras-tf spe 1", "keras-jax")
        for key, case in models.CASES.items()
    },
    file="keras.json",
    targets={
        "cnn": 1.6, "mlp128": 2.5, "mlp256": 1.6, "lstm": 1.5, "gru": 1.5, "mlp128-1": 1.5,
        "keras-encoder": 1.3, "keras-resnet": 1.2, "keras-resnet-64": 1.2,
    },
)  # fmt: skip
TORCH = table.Suite(
    title="PopTorch training from its DataLoader",
    module="benchmarks.torch_worker",
    names={key: case.name for key, case in torch_models.CASES.items()},
    peers={key: ("openipu", *case.peers) for key, case in torch_models.CASES.items()},
    file="torch.json",
    # Without a C++ compiler there is none.
    optional="torch.compile",
    targets={
        "classifier": 2.5, "transformer": 1.3, "torch-lstm": 1.5, "torch-lstm-128": 1.5, "torch-gru-128": 1.5,
        "encoder": 1.3, "resnet": 1.2, "resnet-64": 1.2,
    },
)  # fmt: skip
INFERENCE = table.Suite(
    title="Inference",
    module="benchmarks.inference",
    names={
        **{f"predict-{batch}": f"tutorial CNN, predict, batch {batch}" for batch in inference.BATCHES},
        **{f"inferenceModel-{b}": f"course classifier, inferenceModel, batch {b}" for b in inference.BATCHES},
    },
    peers={
        **{f"predict-{batch}": _KERAS_PEERS for batch in inference.BATCHES},
        **{f"inferenceModel-{batch}": _TORCH_PEERS for batch in inference.BATCHES},
    },
    file="inference.json",
    optional="torch.compile",
    targets={f"{kind}-{batch}": 1.5 for kind in ("predict", "inferenceModel") for batch in inference.BATCHES},
)
TF1 = table.Suite(
    title="A classic program of TensorFlow 1: loops.repeat over an infeed, and one session.run a step",
    module="benchmarks.tf1_worker",
    names={"tf1": "one convolution twice, dense 10, batch 32, Adam"},
    peers={"tf1": ("openipu", "openipu session", "tf v1 session")},
    file="tf1.json",
)
LOOPS = table.Suite(
    title="An own training loop: loops.repeat over an infeed beside fit",
    module="benchmarks.loop_worker",
    names={"loop": "MLP 128, batch 32, SGD"},
    peers={"loop": ("openipu", "fit", "fit from the dataset")},
    file="loops.json",
)
SUITES = (KERAS, TORCH, INFERENCE, TF1, LOOPS)
# What is measured from imports to the end of the first step, and beside busy processes.
_FIRST = {"cnn": "keras", "mlp128": "keras", "lstm": "keras", "transformer": "torch", "resnet": "torch"}
_BESIDE = ("cnn", "mlp128", "resnet")


def first_steps(console: Console) -> dict:
    """The first step of a program that compiles it, and of the next run, which finds it in the cache."""
    names = KERAS.names | TORCH.names
    figures, rows = {}, []
    for key, kind in _FIRST.items():
        with console.status(f"measuring the first step of {key}"), tempfile.TemporaryDirectory() as folder:
            done = [table.call("benchmarks.first_step", kind, key, folder) for _ in range(3)]
        first, *later = [table.figures_of(d, f"first step of {key}")["seconds"] for d in done]
        figures[key] = {"first_run_s": first, "second_run_s": min(later)}
        rows.append((names[key], f"{first:.2f}", f"{min(later):.2f}", f"{first / min(later):.2f}"))
    columns = ("model", "first run s", "second run s", "ratio")
    table.show(console, "From imports to the end of the first step", columns, rows)
    return figures


def scaling(console: Console) -> dict:
    """How time grows with layers, replicas and steps."""

    def measured(*arguments: str) -> dict:
        with console.status(f"measuring {' '.join(arguments)}"):
            return table.figures_of(table.call("benchmarks.scaling", *arguments), " ".join(arguments))

    layers, steps = measured("layers"), measured("steps")
    rows = [(f"{n} dense layers", f"{r['first_s']:.2f}", f"{r['ms_per_step']:.2f}") for n, r in layers.items()]
    table.show(console, "Layers: 256 wide, batch 64", ("layers", "first execution s", "ms/step"), rows)
    figures = {"layers": layers, "steps": steps}
    counts: Sequence[str] = ()
    rows = []
    for key, total in (("mlp128", 512), ("cnn", 256)):
        figures[f"replicas {key}"] = row = measured("replicas", key, str(total))
        counts = list(row)
        rows.append(
            (KERAS.names[key], str(total), *(f"{ms:.2f}" for ms in row.values()), f"{row['16'] / row['1']:.2f}")
        )
    title = "Replicas: milliseconds a step with the same total batch"
    table.show(console, title, ("model", "total batch", *counts, "16 to 1"), rows)
    rows = [(f"{int(count):,}", f"{ms * 1e3:.0f}") for count, ms in steps.items()]
    table.show(console, "Steps in an epoch: MLP 128, batch 4", ("steps", "µs/step"), rows)
    return figures


def beside_others(console: Console) -> dict:
    """Ratios to the best peer while another process keeps every core busy."""
    figures, rows = {}, []
    for key in _BESIDE:
        suite = KERAS if key in KERAS.names else TORCH
        with console.status(f"measuring {key} beside busy processes"):
            quiet = table.measured(suite, key)
            with _busy():
                contended = table.measured(suite, key)
        both = [part["speedup_over_best_peer"] for part in (quiet, contended)]
        figures[key] = dict(zip(("quiet", "contended"), both, strict=True))
        rows.append((suite.names[key], *(f"{ratio:.2f}" for ratio in both), f"{both[1] / both[0]:.2f}"))
    columns = ("model", "alone", "beside others", "of it kept")
    table.show(console, "Times the best peer, alone and with every core contended", columns, rows)
    return figures


@contextlib.contextmanager
def _busy() -> Iterator[None]:
    """Processes that never rest, one a core."""
    import os

    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


_PARTS: dict[str, Callable[[Console], dict]] = {
    "first": first_steps,
    "scaling": scaling,
    "beside": beside_others,
    "instances": lambda console: instances.show(KERAS.names, console),
}


@click.command()
@click.option("--rounds", default=2, show_default=True, help="Rounds over all peers; the best of each counts.")
@click.option(
    "--only",
    type=click.Choice([key for suite in SUITES for key in suite.names] + list(_PARTS)),
    multiple=True,
    help="Only these models and parts.",
)
def main(rounds: int, only: tuple[str, ...]) -> None:
    """Measure openipu beside stock Keras and stock PyTorch on this machine."""
    console = Console(width=130)
    console.print(f"{table.processor()}, products of matrices at {table.limit():.0f} GFLOP/s")
    done = []
    for suite in SUITES:
        keys = [key for key in suite.names if not only or key in only]
        if keys:
            summary = table.run(suite, keys, rounds, console)
            table.write(summary, suite.file, console)
            done.append((suite, summary))
    if done:
        table.show_targets(done, console)
    for name, part in _PARTS.items():
        if not only or name in only:
            table.write(part(console), f"{name}.json", console)


if __name__ == "__main__":
    main()
