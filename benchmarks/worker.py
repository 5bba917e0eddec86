"""Measure one model with one peer, in a process of its own, and print the figures as JSON."""

import json
import os
import resource
import sys
import time

EPOCHS = 4


def main(key: str, peer: str) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    # Programs for IPUs run without it; the peers must have what they would have elsewhere.
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0" if peer == "openipu" else "1"
    os.environ["KERAS_BACKEND"] = "jax" if peer == "keras-jax" else "tensorflow"
    import keras

    from benchmarks import models

    if peer == "openipu":
        from tensorflow.python import ipu

        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 1
        config.configure_ipu_system()
        scope = ipu.ipu_strategy.IPUStrategy().scope()
    else:
        import contextlib

        scope = contextlib.nullcontext()

    x, y = models.data(key)
    started = time.perf_counter()
    epochs: list[float] = []
    work: list[float] = []
    first: list[float] = []

    class Clock(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.begin, self.busy = time.perf_counter(), time.process_time()

        def on_train_batch_end(self, batch, logs=None):
            if not first:
                first.append(time.perf_counter() - started)

        def on_epoch_end(self, epoch, logs=None):
            epochs.append(time.perf_counter() - self.begin)
            work.append(time.process_time() - self.busy)

    case = models.CASES[key]
    with scope:
        model = models.build(key, keras, 1 if peer == "keras-tf spe 1" else 200)
        history = model.fit(x, y, batch_size=case.batch, epochs=EPOCHS, verbose=0, callbacks=[Clock()])
    print(
        json.dumps(
            {
                "us_per_step": min(epochs[1:]) / case.steps * 1e6,
                "cpu_us_per_step": min(work[1:]) / case.steps * 1e6,
                "first_execution_s": first[0],
                "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "loss": float(history.history["loss"][-1]),
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
