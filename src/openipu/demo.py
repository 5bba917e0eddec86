"""`make demo`: tutorial models on virtual IPUs beside stock Keras, same weights, same batches."""

import contextlib
import time
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
from rich.console import Console
from rich.table import Table

from openipu import _hook, quiet

BATCH, STEPS, EPOCHS = 64, 72, 6


@attrs.frozen
class Run:
    """How one model was trained and what came of it."""

    model: str
    how: str
    accuracy: float
    us_per_step: float
    first: float


@attrs.frozen(eq=False)
class Variant:
    """One way of running a model: on which IPUs, in executions of how many steps, with which options."""

    how: str
    ipus: int
    steps_per_execution: int
    prepare: Callable[[Any], None] = lambda model: None


def main() -> None:
    """Train, print the table and the timeline of the pipeline."""
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
        with console.status(f"{name}: stock Keras"):
            stock = _compiled(keras, build, 24)
            start = stock.get_weights()
            runs.append(_train(name, "stock Keras", stock, train, lambda: _accuracy(stock, test)))
        for variant in variants[name]:
            with console.status(f"{name}: {variant.how}"):
                runs.append(_on_ipus(keras, name, build, variant, start, stock, train, test))
    console.print(_table(runs))
    console.print("\nThe pipeline of the CNN, one update: IPU 0 holds the first stage, IPU 1 the second.")
    show(timeline(Schedule.GROUPED, 2, 8, True), console)


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

        return _train(name, variant.how, model, train, accuracy)


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
    for column in ("model", "run on", "test accuracy", "µs per batch", "speed-up", "first execution after"):
        table.add_column(column, justify="left" if column in ("model", "run on") else "right")
    stock = {run.model: run.us_per_step for run in runs if run.how == "stock Keras"}
    last = None
    for run in runs:
        if last not in (None, run.model):
            table.add_section()
        speed = f"{stock[run.model] / run.us_per_step:.1f}x" if run.how != "stock Keras" else ""
        table.add_row(
            run.model if last != run.model else "", run.how, f"{run.accuracy:.1%}", f"{run.us_per_step:.0f}", speed,
            f"{run.first:.1f} s",
        )  # fmt: skip
        last = run.model
    return table


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
