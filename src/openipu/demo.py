"""`make demo`: tutorial models on virtual IPUs beside stock Keras, same weights, same batches."""

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
from rich.console import Console
from rich.table import Table

from openipu import _hook, quiet
from openipu.report import measured

BATCH, STEPS, EPOCHS = 64, 72, 6
STOCK = "stock Keras"


@attrs.frozen
class Run:
    """How one model was trained, what came of it, and what a real IPU would have needed (None for stock Keras)."""

    model: str
    how: str
    accuracy: float
    us_per_step: float
    first: float
    predicted: Any = attrs.field(default=None, eq=False)


@attrs.frozen(eq=False)
class Variant:
    """One way of running a model: on which IPUs, in executions of how many steps, with which options."""

    how: str
    ipus: int
    steps_per_execution: int
    prepare: Callable[[Any], None] = lambda model: None


def main() -> None:
    """Train, print the table, the timeline of the pipeline and what the figures say."""
    quiet.begin(_hook.BEFORE_IMPORT)
    console = Console(width=110)
    with console.status("Loading TensorFlow, Keras and JAX"):
        import keras

        from openipu import datasets
        from openipu.program.schedule import Schedule, timeline
        from openipu.report.timeline import show
    (x, y), test = datasets.mnist()
    train = _images(x[: BATCH * STEPS], y[: BATCH * STEPS])
    test = _images(*test)
    variants = {
        "CNN": [
            Variant("one virtual IPU", 1, 24),
            Variant("two replicas", 2, 12),
            Variant("two-stage pipeline, 8 batches an update", 2, 24, _pipeline),
        ],
        "MLP": [Variant("one virtual IPU", 1, 24)],
    }
    runs = []
    for name, build in (("CNN", _cnn), ("MLP", _mlp)):
        with console.status(f"{name}: {STOCK}"):
            stock = _compiled(keras, build, 24)
            start = stock.get_weights()
            runs.append(_train(name, STOCK, stock, train, lambda: _accuracy(stock, test)))
        for variant in variants[name]:
            with console.status(f"{name}: {variant.how}"):
                runs.append(_on_ipus(keras, name, build, variant, start, stock, train, test))
    console.print(_table(runs))
    console.print("\nThe pipeline of the CNN, one update: IPU 0 holds the first stage, IPU 1 the second.")
    show(timeline(Schedule.GROUPED, 2, 8, True), console)
    console.print(f"\n{verdict(runs, processor())}")
    console.print(f"\n{prediction([run for run in runs if run.model == 'CNN'])}")


def _on_ipus(keras: Any, name: str, build: Callable, variant: Variant, start: list, stock: Any, train: tuple,
             test: tuple) -> Run:  # fmt: skip
    from tensorflow.python import ipu

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = variant.ipus
    ipu.config.reset_ipu_configuration()
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = _compiled(keras, build, variant.steps_per_execution)
        model.set_weights(start)
        variant.prepare(model)

        def accuracy() -> float:
            stock.set_weights(model.get_weights())
            return _accuracy(stock, test)

        run = _train(name, variant.how, model, train, accuracy)
        return attrs.evolve(run, predicted=_predicted(model))


def _train(name: str, how: str, model: Any, data: tuple, accuracy: Callable[[], float]) -> Run:
    import keras

    epochs: list[float] = []
    first: list[float] = []
    begun = time.perf_counter()

    class Clock(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
            self.begin = time.perf_counter()

        def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
            first.append(time.perf_counter() - begun)

        def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
            epochs.append(time.perf_counter() - self.begin)

    with contextlib.redirect_stdout(None):
        model.fit(*data, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=[Clock()])
    return Run(name, how, accuracy(), min(epochs[1:]) / STEPS * 1e6, first[0])


def _table(runs: list[Run]) -> Table:
    table = Table(title=f"Digits, {EPOCHS} epochs of {STEPS} batches of {BATCH}: same weights, same batches")
    for column in ("model", "run on", "test accuracy", "µs per batch", "speed", "first execution after"):
        table.add_column(column, justify="left" if column in ("model", "run on") else "right")
    speeds = _speeds(runs)
    last = None
    for run in runs:
        if last not in (None, run.model):
            table.add_section()
        speed = f"{speeds[run]:.1f}x" if run in speeds else ""
        table.add_row(
            run.model if last != run.model else "", run.how, f"{run.accuracy:.1%}", f"{run.us_per_step:.0f}", speed,
            f"{run.first:.1f} s",
        )  # fmt: skip
        last = run.model
    return table


def _speeds(runs: list[Run]) -> dict[Run, float]:
    """How many times as fast as stock Keras every other run was."""
    stock = {run.model: run.us_per_step for run in runs if run.how == STOCK}
    return {run: stock[run.model] / run.us_per_step for run in runs if run.how != STOCK}


def verdict(runs: list[Run], machine: str) -> str:
    """One sentence on the speeds of this run, whatever they are."""
    found: dict[str, list[float]] = {}
    for run, speed in _speeds(runs).items():
        found.setdefault(run.model, []).append(round(speed, 1))
    parts = []
    for model, speeds in found.items():
        low, high = min(speeds), max(speeds)
        word = "faster" if low > 1 else "slower" if high < 1 else "as fast" if low == high else "faster or slower"
        span = f"{low}x" if low == high else f"{low}x to {high}x"
        parts.append(f"{model} {span} the speed of {STOCK} ({word})")
    return f"Measured here, on {machine}, once compiled: {'; '.join(parts)}. Other processors give other figures."


def _predicted(model: Any) -> Any:
    """What an IPU of the virtual system would need for the training that a model was compiled for."""
    sessions = [compiled.session for compiled in model._ipu.compiled.values()]
    return next(session for session in sessions if session.program.update is not None).estimate()


def prediction(runs: list[Run]) -> str:
    """One sentence on what real IPUs would have needed for these runs."""
    found = [run for run in runs if run.predicted is not None]
    parts = []
    for run in found:
        worst = run.predicted.worst
        parts.append(
            f"{run.how} {run.predicted.seconds_per_batch * 1e6:.0f} µs per batch, {worst.total / 2**20:.0f} MiB "
            f"({worst.total / worst.capacity:.0%} of an IPU's SRAM)"
        )
    target = found[0].predicted.target.name.capitalize()
    return f"Predicted for a real {target} IPU, {found[0].model}: {'; '.join(parts)}."


def processor() -> str:
    """The processor of this machine and how many of its cores there are."""
    return f"{measured.processor()} with {os.cpu_count()} cores"


def _images(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return (x.astype(np.float32) / 255)[..., None], y.astype(np.int32)


def _accuracy(model: Any, test: tuple) -> float:
    predicted = np.asarray(model(test[0])).argmax(-1)
    return float((predicted == test[1]).mean())


def _compiled(keras: Any, build: Callable, steps_per_execution: int) -> Any:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((28, 28, 1)), *build(keras.layers)])
    model.compile(
        loss="sparse_categorical_crossentropy", optimizer=keras.optimizers.SGD(0.05), metrics=["accuracy"],
        steps_per_execution=steps_per_execution,
    )  # fmt: skip
    return model


def _cnn(layers: Any) -> list:
    return [
        layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(), layers.Conv2D(64, 3, activation="relu"),
        layers.MaxPooling2D(), layers.Flatten(), layers.Dropout(0.5), layers.Dense(10, activation="softmax"),
    ]  # fmt: skip


def _mlp(layers: Any) -> list:
    return [
        layers.Flatten(), layers.Dense(256, activation="relu"), layers.Dense(128, activation="relu"),
        layers.Dense(10, activation="softmax"),
    ]  # fmt: skip


def _pipeline(model: Any) -> None:
    model.set_pipeline_stage_assignment([0, 0, 1, 1, 1, 1, 1])
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=8)


if __name__ == "__main__":
    main()
