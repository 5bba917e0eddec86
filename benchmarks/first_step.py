"""Measure how long a program takes from its imports to the end of its first step, in a process of its own."""

import json
import os
import sys
import time
from collections.abc import Callable


def keras_program(key: str) -> Callable[[], object]:
    """Builds and trains a Keras model for one step."""
    import keras
    from tensorflow.python import ipu

    from benchmarks import models

    x, y = models.data(key)
    batch = models.CASES[key].batch

    def run() -> None:
        with ipu.ipu_strategy.IPUStrategy().scope():
            models.build(key, keras, 1).fit(x[:batch], y[:batch], batch_size=batch, verbose=0)

    return run


def torch_program(key: str) -> Callable[[], object]:
    """Builds and trains a PyTorch model for one call of the executor."""
    import torch

    import poptorch  # noqa: F401  (its import is not measured)
    from benchmarks import torch_models
    from benchmarks.torch_worker import poptorch_epochs

    case = torch_models.CASES[key]
    (x, y), _ = torch_models.data(key)
    rows = case.batch * case.iterations

    def run() -> None:
        dataset = torch.utils.data.TensorDataset(x[:rows], y[:rows])
        epoch, _ = poptorch_epochs(case, torch_models.build(key), dataset)
        epoch(lambda: None)

    return run


def main(kind: str, key: str, cache: str) -> None:
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "OPENIPU_CACHE": cache}
    run = {"keras": keras_program, "torch": torch_program}[kind](key)
    started = time.perf_counter()
    run()
    print(json.dumps({"seconds": time.perf_counter() - started}))


if __name__ == "__main__":
    main(*sys.argv[1:])
