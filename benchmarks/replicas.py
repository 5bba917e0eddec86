"""Measure sixteen replicas and one device with the same total batch, in one process."""

import json
import os
import sys
import time

STEPS, ROUNDS = 20, 4


def main(key: str, total: str) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import keras
    import numpy as np
    from tensorflow.python import ipu

    from benchmarks import models

    x, y = models.data(key)
    rows = np.arange(STEPS * int(total)) % len(x)
    x, y = x[rows], y[rows]
    runs = {}
    for replicas in (1, 16):
        ipu.config.reset_ipu_configuration()
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = replicas
        config.configure_ipu_system()
        batch = int(total) // replicas
        with ipu.ipu_strategy.IPUStrategy().scope():
            model = models.build(key, keras, STEPS)
            model.fit(x, y, batch_size=batch, verbose=0)
        times = []
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            model.fit(x, y, batch_size=batch, verbose=0)
            times.append((time.perf_counter() - begin) / STEPS * 1e3)
        runs[replicas] = min(times)
    print(json.dumps(runs))


if __name__ == "__main__":
    main(*sys.argv[1:])
