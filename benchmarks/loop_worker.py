"""Measure an own training loop, or `fit` on the same model and data, in a process of its own, as JSON."""

import json
import os
import resource
import sys
import time

STEPS = 2000  # of one measured round
LOOP = 200  # steps of one execution
BATCH = 32
ROUNDS = 4


def main(key: str, peer: str) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import keras
    import tensorflow as tf
    from tensorflow.python import ipu

    from benchmarks import models

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    x, y = models.data("mlp128")
    started = time.perf_counter()
    times, work = [], []
    first = 0.0
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = models.build("mlp128", keras, LOOP)
        if peer == "fit":

            def one_round() -> float:
                return model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0).history["loss"][-1]
        elif peer == "fit from the dataset":
            batches = _batches(tf, x, y)

            def one_round() -> float:
                return model.fit(batches, steps_per_epoch=STEPS, verbose=0).history["loss"][-1]
        else:
            one_round = _loop(tf, ipu, keras, model, x, y)
        for number in range(ROUNDS + 1):
            begin, busy = time.perf_counter(), time.process_time()
            loss = one_round()
            times.append(time.perf_counter() - begin)
            work.append(time.process_time() - busy)
            first = first if number else time.perf_counter() - started
    print(
        json.dumps(
            {
                "us_per_step": min(times[1:]) / STEPS * 1e6,
                "cpu_us_per_step": min(work[1:]) / STEPS * 1e6,
                "first_execution_s": first,
                "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "loss": float(loss),
            }
        )
    )


def _batches(tf, x, y):
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH, drop_remainder=True).repeat()


def _loop(tf, ipu, keras, model, x, y):
    """A round of the same steps, written with queues."""
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(_batches(tf, x, y))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    optimizer = keras.optimizers.SGD()
    optimizer.build(model.trainable_variables)
    measure = keras.losses.SparseCategoricalCrossentropy()

    def body(images, labels):
        with tf.GradientTape() as tape:
            loss = measure(labels, model(images, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        outfeed.enqueue(loss)

    @tf.function(jit_compile=True)
    def program():
        ipu.loops.repeat(LOOP, body, [], infeed)

    strategy = tf.distribute.get_strategy()
    infeed.initializer  # noqa: B018

    def one_round() -> float:
        for _ in range(STEPS // LOOP):
            strategy.run(program)
        return outfeed.dequeue().numpy().mean()

    return one_round


if __name__ == "__main__":
    main(*sys.argv[1:])
