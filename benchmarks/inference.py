"""Measure inference with one peer, in a process of its own, and print the figures as JSON."""

import json
import os
import resource
import sys
import time
from collections.abc import Callable

ROUNDS = 5
# Executions of openipu, and steps of Keras where it can have several, have so many batches.
TOGETHER = 64
BATCHES = {64: 64, 1: 512}


def keras_predict(peer: str, batch: int) -> tuple[Callable[[], object], int]:
    """`predict` of the tutorial CNN over all batches, and how many there are."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0" if peer == "openipu" else "1"
    os.environ["KERAS_BACKEND"] = "jax" if peer == "keras-jax" else "tensorflow"
    import contextlib

    import keras

    from benchmarks import models

    scope: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext
    if peer == "openipu":
        from tensorflow.python import ipu

        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 1
        config.configure_ipu_system()
        scope = ipu.ipu_strategy.IPUStrategy().scope
    x = models.data("cnn")[0][: batch * BATCHES[batch]]
    with scope():
        model = models.build("cnn", keras, 1 if peer == "keras-tf spe 1" else TOGETHER)

    def run() -> None:
        with scope():
            model.predict(x, batch_size=batch, verbose=0)

    return run, BATCHES[batch]


def torch_inference(peer: str, batch: int) -> tuple[Callable[[], object], int]:
    """The course classifier over all batches, and how many there are."""
    import torch

    from benchmarks import torch_models

    if peer.endswith("1 thread"):
        torch.set_num_threads(1)
    model = torch_models.build("classifier").eval()
    x = torch_models.data("classifier")[0][0]
    x = x.repeat(batch * BATCHES[batch] // len(x) + 1, *[1] * (x.ndim - 1))[: batch * BATCHES[batch]]
    if peer == "openipu":
        import poptorch

        options = poptorch.Options().deviceIterations(TOGETHER)
        options.showCompilationProgressBar(False)
        ready = poptorch.inferenceModel(model, options)
        size = batch * TOGETHER
    else:
        ready, size = (torch.compile(model) if peer == "torch.compile" else model), batch

    def run() -> None:
        with torch.no_grad():
            for part in x.split(size):
                ready(part)

    return run, BATCHES[batch]


def main(key: str, peer: str) -> None:
    kind, batch = key.split("-")
    run, batches = {"predict": keras_predict, "inferenceModel": torch_inference}[kind](peer, int(batch))
    started = time.perf_counter()
    run()
    first = time.perf_counter() - started
    wall, busy = [], []
    for _ in range(ROUNDS):
        begin, used = time.perf_counter(), time.process_time()
        run()
        wall.append((time.perf_counter() - begin) / batches * 1e6)
        busy.append((time.process_time() - used) / batches * 1e6)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures = {"us_per_step": min(wall), "cpu_us_per_step": min(busy), "first_execution_s": first, "peak_rss_mib": peak}
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
