"""Measure how time grows with layers, replicas and steps, in a process of its own, and print the figures as JSON."""

import json
import os
import sys
import time
from typing import Any

STEPS, ROUNDS = 20, 4


def strategy(replicas: int = 1) -> Any:
    """The scope of a strategy over so many replicas."""
    from tensorflow.python import ipu

    ipu.config.reset_ipu_configuration()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = replicas
    config.configure_ipu_system()
    return ipu.ipu_strategy.IPUStrategy().scope()


def layers() -> dict[str, dict[str, float]]:
    """Seconds to the first step, and milliseconds of one, with so many layers."""
    import keras
    import numpy as np

    batch, width = 64, 256
    x = np.random.default_rng(0).standard_normal((batch * STEPS, width)).astype("float32")
    figures = {}
    for count in (2, 8, 32):
        with strategy():
            body = [keras.layers.Dense(width, activation="relu") for _ in range(count)]
            model = keras.Sequential([keras.layers.Input((width,)), *body])
            model.compile("sgd", "mse", steps_per_execution=STEPS)
            begin = time.perf_counter()
            model.fit(x, x, batch_size=batch, verbose=0)
            first = time.perf_counter() - begin
            figures[str(count)] = {"first_s": first, "ms_per_step": _best(model, x, x, batch, STEPS)}
    return figures


def replicas(key: str, total: int) -> dict[str, float]:
    """Milliseconds of a step of so many replicas with the same total batch."""
    import keras
    import numpy as np

    from benchmarks import models

    x, y = models.data(key)
    rows = np.arange(STEPS * total) % len(x)
    x, y = x[rows], y[rows]
    figures = {}
    for count in (1, 2, 4, 8, 16):
        with strategy(count):
            model = models.build(key, keras, STEPS)
            model.fit(x, y, batch_size=total // count, verbose=0)
            figures[str(count)] = _best(model, x, y, total // count, STEPS)
    return figures


def steps() -> dict[str, float]:
    """Milliseconds of a step in epochs of so many steps."""
    import keras
    import numpy as np

    from benchmarks import models

    x, y = models.data("mlp128")
    figures = {}
    for count in (1_000, 10_000, 100_000):
        rows = np.arange(count * 4) % len(x)
        with strategy():
            model = models.build("mlp128", keras, 200)
            # The first of them compiles, for tables of so many rows.
            figures[str(count)] = _best(model, x[rows], y[rows], 4, count, rounds=2)
    return figures


def _best(model: Any, x: Any, y: Any, batch: int, steps: int, rounds: int = ROUNDS) -> float:
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        model.fit(x, y, batch_size=batch, verbose=0)
        times.append((time.perf_counter() - begin) / steps * 1e3)
    return min(times)


def main(what: str, *given: str) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    made = replicas(given[0], int(given[1])) if what == "replicas" else {"layers": layers, "steps": steps}[what]()
    print(json.dumps(made))


if __name__ == "__main__":
    main(*sys.argv[1:])
