"""Run by poprun in every instance: trains a model on its share of a total batch and measures what that costs."""

import json
import os
import pathlib
import sys
import time

STEPS, ROUNDS = 20, 5


def written() -> int:
    """Bytes this process has written to files and sockets."""
    lines = pathlib.Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("wchar")))


def all_reduce_seconds(count: int) -> float:
    """The best time of one sum of so many numbers over all instances, and nothing else."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    devices = jax.devices()
    if len(devices) == 1:
        return 0.0
    mesh = Mesh(np.array(devices), ("device",))
    one = jax.shard_map(
        lambda x: jax.lax.psum(x, "device"), mesh=mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec(),
        check_vma=False,
    )  # fmt: skip

    def many(x):
        return jax.lax.fori_loop(0, STEPS, lambda _, v: one(v) / len(devices), x)

    call = jax.jit(many)
    where = NamedSharding(mesh, PartitionSpec())
    x = jax.make_array_from_process_local_data(where, np.ones(count, np.float32))
    times = []
    for _ in range(ROUNDS + 1):
        begin = time.perf_counter()
        jax.block_until_ready(call(x))
        times.append((time.perf_counter() - begin) / STEPS)
    return min(times[1:])


def main(key: str, total: str) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import keras
    import numpy as np
    from tensorflow.python import ipu
    from tensorflow.python.ipu.distributed.popdist_strategy import PopDistStrategy

    import popdist
    import popdist.tensorflow
    from benchmarks import models

    config = ipu.config.IPUConfig()
    popdist.tensorflow.set_ipu_config(config)
    config.configure_ipu_system()
    instances = popdist.getNumInstances()
    batch = int(total) // instances
    x, y = models.data(key)
    rows = np.arange(STEPS * batch) % len(x)
    x, y = x[rows], y[rows]
    with PopDistStrategy().scope():
        model = models.build(key, keras, STEPS)
        model.fit(x, y, batch_size=batch, verbose=0)
        times, sent = [], []
        for _ in range(ROUNDS):
            before, begin = written(), time.perf_counter()
            model.fit(x, y, batch_size=batch, verbose=0)
            times.append((time.perf_counter() - begin) / STEPS)
            sent.append((written() - before) / STEPS)
    count = sum(int(np.prod(w.shape)) for w in model.trainable_weights)
    figures = {
        "ms_per_step": min(times) * 1e3,
        "collectives": all_reduce_seconds(count) / min(times),
        "bytes_sent": min(sent),
        "bytes_minimum": 4 * count * 2 * (instances - 1) / instances,
    }
    if popdist.getInstanceIndex() == 0:
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
