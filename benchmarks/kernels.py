"""Time one training step of the tutorial CNN inside a scan: as captured, optimised, and in stock Keras."""

import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import jaxpr_as_fun

from openipu.compiler.passes import optimise

BATCH, STEPS, ROUNDS = 64, 10, 15


def step(weights, x, y, number):
    """One step of stochastic gradient descent on the tutorial CNN."""

    def pool(h):
        return lax.reduce_window(h, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def conv(h, w, b):
        h = lax.conv_general_dilated(h, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return pool(jax.nn.relu(h + b))

    def loss(weights):
        w1, b1, w2, b2, w3, b3 = weights
        h = conv(conv(x, w1, b1), w2, b2).reshape(len(x), -1)
        h = jnp.where(jax.random.bernoulli(jax.random.key(number, impl="rbg"), 0.5, h.shape), h * 2, 0)
        return -jnp.take_along_axis(jax.nn.log_softmax(h @ w3 + b3), y[:, None], 1).mean()

    value, gradients = jax.value_and_grad(loss)(weights)
    return [w - 0.01 * g for w, g in zip(weights, gradients, strict=True)], value


def ours(x, y, optimised: bool):
    """Returns a function that runs STEPS steps in one program."""
    random = np.random.default_rng(0)
    shapes = [(3, 3, 1, 32), (32,), (3, 3, 32, 64), (64,), (1600, 10), (10,)]
    weights = [jnp.asarray(random.standard_normal(shape) * 0.05, jnp.float32) for shape in shapes]
    closed = jax.make_jaxpr(step)(weights, x[0], y[0], jnp.int32(0))
    flat = jaxpr_as_fun(optimise(closed) if optimised else closed)
    tree = jax.tree.structure((weights, 0.0))

    @jax.jit
    def run(weights, x, y):
        batches = (x, y, jnp.arange(len(x), dtype=jnp.int32))
        return lax.scan(lambda w, batch: jax.tree.unflatten(tree, flat(*w, *batch)), weights, batches)

    return lambda: jax.block_until_ready(run(weights, x, y))


def stock_keras(x, y):
    """Returns a function that runs STEPS steps of Keras on TensorFlow in one execution."""
    import keras

    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(optimizer="sgd", loss="sparse_categorical_crossentropy", steps_per_execution=STEPS)
    images, labels = x.reshape(-1, 28, 28, 1), y.reshape(-1)
    return lambda: model.fit(images, labels, batch_size=BATCH, epochs=1, verbose=0, shuffle=False)


def main() -> None:
    random = np.random.default_rng(0)
    x = random.random((STEPS, BATCH, 28, 28, 1), np.float32)
    y = random.integers(0, 10, (STEPS, BATCH)).astype(np.int32)
    runs = {
        "stock Keras on TensorFlow": stock_keras(np.tile(x, (10, 1, 1, 1, 1)), np.tile(y, (10, 1))),
        "as captured, XLA's kernels": ours(x, y, optimised=False),
        "optimised": ours(x, y, optimised=True),
    }
    # Keras pays for starting an epoch, so it runs more steps for one start.
    steps = dict.fromkeys(runs, STEPS) | {"stock Keras on TensorFlow": 10 * STEPS}
    wall, cpu = (dict.fromkeys(runs, float("inf")) for _ in range(2))
    for run in runs.values():
        run()
    for number in range(ROUNDS):
        for name, run in runs.items():
            if number < 2 or not name.startswith("as captured"):
                start, busy = time.perf_counter(), time.process_time()
                run()
                wall[name] = min(wall[name], (time.perf_counter() - start) / steps[name] * 1e3)
                cpu[name] = min(cpu[name], (time.process_time() - busy) / steps[name] * 1e3)
    # On a machine with other work to do, the ratio of processor times is the more stable one.
    best = "optimised"
    for name in runs:
        print(
            f"{name:28} {wall[name]:7.2f} ms a step ({wall[name] / wall[best]:5.2f} x), "
            f"{cpu[name]:7.2f} ms of processor time ({cpu[name] / cpu[best]:5.2f} x)"
        )


if __name__ == "__main__":
    main()
