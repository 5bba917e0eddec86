"""`python -m benchmarks.donation`: what it costs that executions donate nothing, so that no interrupt loses weights.

The same program is compiled as openipu does it, and with its state donated; both run in turns in one process.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from unittest import mock

import click
import jax
import jax.numpy as jnp
import numpy as np

from openipu.compiler import Executable, compile_program
from openipu.program import OutputMode, Plan, Program, Slot

# (width, layers, batch, steps of an execution): states of 0.2, 12 and 144 MiB, with both moments of Adam.
CASES = ((128, 1, 32, 1), (128, 1, 32, 64), (1024, 1, 32, 1), (1024, 1, 32, 16), (2048, 3, 64, 1), (2048, 3, 64, 8))


def network(width: int, layers: int, batch: int) -> Program:
    """A network of square layers, trained by Adam."""
    names = [f"{kind}{i}" for kind in ("weight", "first", "second") for i in range(layers)]

    def loss(weights: Sequence[jax.Array], x: jax.Array) -> jax.Array:
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return (x**2).mean()

    def step(shared: Sequence, local: Sequence, feeds: Sequence, key: jax.Array) -> tuple:
        value, gradients = jax.value_and_grad(loss)(list(shared[:layers]), feeds[0])
        return gradients, [], [value]

    def update(shared: Sequence, local: Sequence, gradients: Sequence) -> tuple:
        weights, first, second = (shared[i * layers : (i + 1) * layers] for i in range(3))
        first = [0.9 * m + 0.1 * g for m, g in zip(first, gradients, strict=True)]
        second = [0.999 * v + 0.001 * g * g for v, g in zip(second, gradients, strict=True)]
        new = [w - 1e-3 * m / (jnp.sqrt(v) + 1e-7) for w, m, v in zip(weights, first, second, strict=True)]
        return [*new, *first, *second], {}

    shared = tuple(Slot(name, (width, width), np.float32) for name in names)
    return Program("network", shared, (), (Slot("x", (batch, width), np.float32),), step, update)


def compiled(program: Program, plan: Plan, donated: bool) -> Executable:
    """Compile as openipu does, or with the state donated."""
    if not donated:
        return compile_program(program, plan)
    jit = jax.jit

    def donating(*args: object, **kwargs: object) -> object:
        return jit(*args, **kwargs, donate_argnums=(0, 1))  # pyright: ignore[reportCallIssue, reportArgumentType]

    with mock.patch("openipu.compiler.compile.jax.jit", donating):
        return compile_program(program, plan)


def runner(program: Program, plan: Plan, donated: bool) -> Callable[[], float]:
    """Runs one execution; returns the seconds it took."""
    executable = compiled(program, plan, donated)
    draw = np.random.default_rng(0)
    places = executable.places
    state = [jax.device_put(draw.standard_normal(s.shape, np.float32) / 50, places.shared) for s in program.shared]
    shape = (plan.device_iterations, *program.batch[0].shape)
    feeds = [jax.device_put(draw.standard_normal(shape, np.float32), places.feeds)]
    seeds = jax.device_put(np.uint64(0), places.local)

    def run() -> float:
        nonlocal state
        started = time.perf_counter()
        with jax.enable_x64(True):
            made = jax.block_until_ready(executable.call(state, [], feeds, seeds))
        state = list(made[0])
        return time.perf_counter() - started

    return run


@click.command()
@click.option("--seconds", default=4.0, show_default=True, help="For each case and form.")
def main(seconds: float) -> None:
    """Print the times of executions as they are and with donated state."""
    click.echo(f"{'state':>9} {'steps':>6} {'as it is':>12} {'donated':>12} {'cost':>7}")
    for width, layers, batch, steps in CASES:
        program = network(width, layers, batch)
        plan = Plan(steps, outputs=OutputMode.FINAL)
        with jax.enable_x64(True):
            runs = [runner(program, plan, donated) for donated in (False, True)]
        for run in runs:
            run(), run()
        times: list[list[float]] = [[], []]
        end = time.monotonic() + 2 * seconds
        while time.monotonic() < end or len(times[1]) < 5:
            for run, found in zip(runs, times, strict=True):
                found.append(run())
        ours, theirs = (statistics.median(found) for found in times)
        size = 3 * layers * width * width * 4 / 2**20
        click.echo(
            f"{size:7.1f}MB {steps:6} {ours * 1e3:10.3f}ms {theirs * 1e3:10.3f}ms {(ours / theirs - 1) * 100:+6.1f}%"
        )


if __name__ == "__main__":
    main()
