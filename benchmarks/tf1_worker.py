"""Measure the classic program of TensorFlow 1 with one peer, in a process of its own, and print the figures as JSON."""

import json
import os
import resource
import sys
import time

BATCH = 32
STEPS = 400  # of one measured round
LOOP = 200  # steps of one `loops.repeat`
ROUNDS = 4


def main(key: str, peer: str) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0" if peer.startswith("openipu") else "1"
    import numpy as np
    import tensorflow.compat.v1 as tf

    from openipu import datasets

    tf.disable_v2_behavior()
    (images, labels), _ = datasets.fashion_mnist()
    rows = np.random.default_rng(0).integers(0, len(images), STEPS * BATCH)
    x = (images[rows] / 255).astype(np.float32).reshape(STEPS, BATCH, 28, 28, 1)
    y = labels[rows].astype(np.int32).reshape(STEPS, BATCH)
    started = time.perf_counter()
    measure = {"openipu": _loop, "openipu session": _session_on_ipu, "tf v1 session": _session}[peer]
    first, rounds, work, loss = measure(tf, x, y, started)
    print(
        json.dumps(
            {
                "us_per_step": min(rounds[1:]) / STEPS * 1e6,
                "cpu_us_per_step": min(work[1:]) / STEPS * 1e6,
                "first_execution_s": first,
                "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "loss": float(loss),
            }
        )
    )


def _train(tf, x, y):
    conv = tf.keras.layers.Conv2D(8, 3, padding="same", kernel_initializer=tf.keras.initializers.GlorotUniform(seed=1))
    dense = tf.keras.layers.Dense(10, kernel_initializer=tf.keras.initializers.GlorotUniform(seed=2))
    # The convolution is used twice, so its input has as many channels as its output.
    hidden = conv(conv(tf.tile(x, [1, 1, 1, 8])))
    logits = dense(tf.reshape(hidden, [x.shape[0], 28 * 28 * 8]))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    return loss, tf.train.AdamOptimizer(0.01).minimize(loss)


def _timed(rounds, round_of):
    times, work, loss = [], [], 0.0
    for _ in range(rounds):
        begin, busy = time.perf_counter(), time.process_time()
        loss = round_of()
        times.append(time.perf_counter() - begin)
        work.append(time.process_time() - busy)
    return times, work, loss


def _sessions(tf, x, y, started, fetches, inputs):
    images, labels = inputs
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(fetches, {images: x[0], labels: y[0]})
        first = time.perf_counter() - started

        def one_round() -> float:
            for a, b in zip(x, y, strict=True):
                loss = session.run(fetches, {images: a, labels: b})[0]
            return loss

        return first, *_timed(ROUNDS, one_round)


def _session(tf, x, y, started):
    inputs = tf.placeholder(tf.float32, x.shape[1:]), tf.placeholder(tf.int32, y.shape[1:])
    return _sessions(tf, x, y, started, _train(tf, *inputs), inputs)


def _on_ipu(tf, computation, inputs=None):
    from tensorflow.python import ipu

    opts = ipu.utils.create_ipu_config()
    ipu.utils.configure_ipu_system(ipu.utils.auto_select_ipus(opts, 1))
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        return ipu.ipu_compiler.compile(computation, inputs)


def _session_on_ipu(tf, x, y, started):
    inputs = tf.placeholder(tf.float32, x.shape[1:]), tf.placeholder(tf.int32, y.shape[1:])
    return _sessions(tf, x, y, started, _on_ipu(tf, lambda a, b: _train(tf, a, b), inputs), inputs)


def _loop(tf, x, y, started):
    from tensorflow.python import ipu

    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices((x, y)).repeat())
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def body(a, b):
        loss, train = _train(tf, a, b)
        return outfeed.enqueue(loss), train

    loop = _on_ipu(tf, lambda: ipu.loops.repeat(LOOP, body, [], infeed))
    losses = outfeed.dequeue()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(infeed.initializer)
        session.run(loop)
        first = time.perf_counter() - started

        def one_round() -> float:
            for _ in range(STEPS // LOOP):
                session.run(loop)
            return session.run(losses)[-1]

        return first, *_timed(ROUNDS, one_round)


if __name__ == "__main__":
    main(*sys.argv[1:])
