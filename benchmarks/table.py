"""One table of models and peers: every pair measured in a process of its own, the best of all rounds, as ratios."""

import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import attrs
import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

RESULTS = pathlib.Path(__file__).parent / "results"
# What a process has compiled must not help the next one to its first step.
_CACHES = ("OPENIPU_CACHE", "POPTORCH_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
_COLUMNS = {
    "us_per_step": ("µs/step", "{:.0f}"),
    "ratio": ("ratio", "{:.2f}"),
    "cpu_us_per_step": ("CPU µs/step", "{:.0f}"),
    "cpu_ratio": ("ratio", "{:.2f}"),
    "first_execution_s": ("first call s", "{:.2f}"),
    "peak_rss_mib": ("peak MiB", "{:.0f}"),
    "loss": ("loss", "{:.4f}"),
    "accuracy": ("accuracy", "{:.3f}"),
}


@attrs.frozen
class Suite:
    """What one table compares.

    Attributes:
      title: of the table.
      module: what `python -m` runs for one model and one peer; it prints the figures as JSON in its last line.
      names: what the table calls the models, by key.
      peers: openipu, and what it is compared with, by key.
      file: where the figures are written.
      optional: what the name of a peer begins with that a machine need not have.
      targets: how many times the best peer a model shall be, by key.
    """

    title: str
    module: str
    names: dict[str, str]
    peers: dict[str, tuple[str, ...]]
    file: str
    optional: str | None = None
    targets: dict[str, float] = attrs.field(factory=dict)


def call(module: str, *arguments: str) -> subprocess.CompletedProcess:
    """Runs a module with nothing in its caches."""
    with tempfile.TemporaryDirectory() as empty:
        environment = {name: value for name, value in os.environ.items() if name not in _CACHES}
        environment["TORCHINDUCTOR_CACHE_DIR"] = empty
        command = [sys.executable, "-m", module, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def figures_of(done: subprocess.CompletedProcess, what: str) -> dict:
    """The figures that a process printed."""
    if done.returncode:
        raise click.ClickException(f"{what} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def run(suite: Suite, keys: list[str], rounds: int, console: Console) -> dict:
    """Measures the models with all peers, prints the table, and writes and returns the figures."""
    measured: dict = {key: {peer: [] for peer in suite.peers[key]} for key in keys}
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("measuring", total=rounds * sum(map(len, measured.values())))
        for _ in range(rounds):
            for key in keys:
                for peer, rows in measured[key].items():
                    progress.update(task, description=f"{key}: {peer}")
                    if not (rows and "unavailable" in rows[-1]):
                        rows.append(_measure(suite, key, peer))
                    progress.advance(task)
    summary = {key: _summary({peer: _best(rows) for peer, rows in measured[key].items()}) for key in keys}
    console.print(_table(suite, summary, rounds))
    for key in keys:
        for peer, row in summary[key]["rows"].items():
            if "unavailable" in row:
                console.print(f"{peer} is not available for {key}: {row['unavailable']}")
    return summary


def measured(suite: Suite, key: str) -> dict:
    """One model with all peers, once."""
    return _summary({peer: _measure(suite, key, peer) for peer in suite.peers[key]})


def show(console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table; the first column is text, the others are numbers."""
    shown = Table(title=title)
    for number, column in enumerate(columns):
        shown.add_column(column, justify="right" if number else "left")
    for row in rows:
        shown.add_row(*row)
    console.print(shown)


def show_targets(done: Sequence[tuple[Suite, dict]], console: Console) -> None:
    """Prints all models in one table: ours, the best peer, how many times as fast, and how many that shall be."""
    rows = []
    for suite, summary in done:
        for key, part in summary.items():
            there = {p: r for p, r in part["rows"].items() if p != "openipu" and "unavailable" not in r}
            best = min(there, key=lambda peer: there[peer]["us_per_step"])
            ours, speedup, target = part["rows"]["openipu"], part["speedup_over_best_peer"], suite.targets.get(key)
            rows.append(
                (
                    f"{suite.names[key]} ({suite.title.split()[0]})", f"{ours['us_per_step'] / 1e3:.2f}",
                    f"{there[best]['us_per_step'] / 1e3:.2f}", best, f"{speedup:.2f}",
                    "" if target is None else f"{target:.1f} {'✓' if speedup >= target else '✗'}",
                )
            )  # fmt: skip
    columns = ("model", "ours ms", "best peer ms", "which", "ratio", "target")
    show(console, f"Ratios to the best peer, {processor()}", columns, rows)


def processor() -> str:
    """The name of this machine's processor, and how many cores there are."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    widest = next((w for w in ("amx_tile", "avx512f", "avx2") if any(w in line for line in lines)), "")
    return f"{names[0] if names else platform.processor()} ({platform.machine()} {widest}, {os.cpu_count()} cores)"


def limit() -> float:
    """GFLOP/s of a large product of float32 matrices on all cores: what no layer can be faster than."""
    import numpy as np

    size = 1536
    left = np.random.default_rng(0).random((size, size), np.float32)
    times = []
    for _ in range(8):
        begin = time.perf_counter()
        np.matmul(left, left)
        times.append(time.perf_counter() - begin)
    return 2 * size**3 / min(times) / 1e9


def write(summary: dict, file: str, console: Console) -> None:
    """Keeps figures as JSON beside the benchmarks."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / file).write_text(json.dumps(summary, indent=2))
    console.print(f"Written to {os.path.relpath(RESULTS / file)}")


def _measure(suite: Suite, key: str, peer: str) -> dict:
    done = call(suite.module, key, peer)
    if done.returncode and suite.optional is not None and peer.startswith(suite.optional):
        return {"unavailable": (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1][:200]}
    return figures_of(done, f"{peer} on {key}")


def _best(rounds: list[dict]) -> dict:
    missing = [row for row in rounds if "unavailable" in row]
    return missing[-1] if missing else {name: min(row[name] for row in rounds) for name in rounds[0]}


def _summary(rows: dict[str, dict]) -> dict:
    ours = rows["openipu"]
    there = {peer: row for peer, row in rows.items() if "unavailable" not in row}
    for row in there.values():
        row["ratio"] = row["us_per_step"] / ours["us_per_step"]
        row["cpu_ratio"] = row["cpu_us_per_step"] / ours["cpu_us_per_step"]
    best = min(row["ratio"] for peer, row in there.items() if not peer.startswith("openipu"))
    return {"rows": rows, "speedup_over_best_peer": best}


def _table(suite: Suite, summary: dict, rounds: int) -> Table:
    given = {name for part in summary.values() for row in part["rows"].values() for name in row}
    columns = {name: column for name, column in _COLUMNS.items() if name in given}
    table = Table(title=f"{suite.title}, {processor()}, best of {rounds} rounds")
    table.add_column("model and peers (ratios are to openipu)", no_wrap=True)
    for heading, _ in columns.values():
        table.add_column(heading, justify="right")
    for key, part in summary.items():
        table.add_row(suite.names[key])
        for peer, row in part["rows"].items():
            if "unavailable" in row:
                table.add_row(f"  {peer}: not available")
                continue
            table.add_row(f"  {peer}", *(form.format(row[name]) for name, (_, form) in columns.items()))
        speedup = part["speedup_over_best_peer"]
        table.add_row(f"  [bold]openipu is {speedup:.2f}x the best peer[/bold]", end_section=True)
    return table
