"""A small model as a front end would capture it: layers marked, gradients and update as functions."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from openipu.program import Program, Slot, marks

LAYERS = ("model/conv_0", "model/conv_1", "model/norm", "model/dropout", "model/dense_0", "model/dense_1")


def cnn(batch=8, width=16):
    """A program that trains a CNN on micro-batches of `batch` samples."""
    shapes = [(3, 3, 3, width), (3, 3, width, 2 * width), (2 * width,), (2 * width * 16, 64), (64, 10)]

    def forward(weights, images, key):
        first, second, scale, hidden, last = weights
        x = images
        with marks.layer(LAYERS[3]):
            # Random numbers come first in a captured program, long before the layer that uses them.
            keep = jax.random.bernoulli(key, 0.9, (len(images), 4, 4, 2 * width))
        for name, kernel in zip(LAYERS, (first, second), strict=False):
            with marks.layer(name):
                numbers = ("NHWC", "HWIO", "NHWC")
                x = jax.nn.relu(lax.conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=numbers))
        with marks.layer(LAYERS[2]):
            mean = x.mean((0, 1, 2))
            x = (x - mean) * lax.rsqrt(jnp.square(x - mean).mean((0, 1, 2)) + 1e-5) * scale
        with marks.layer(LAYERS[3]):
            x = jnp.where(keep, x, 0)
        x = x.reshape(x.shape[0], -1)
        with marks.layer(LAYERS[4]):
            x = jax.nn.relu(x @ hidden)
        with marks.layer(LAYERS[5]):
            return x @ last

    def step(shared, local, given, key):
        images, labels = given

        def loss(weights):
            return -jnp.take_along_axis(jax.nn.log_softmax(forward(weights, images, key)), labels[:, None], 1).mean()

        value, gradients = jax.value_and_grad(loss)(list(shared))
        return gradients, [], [value]

    return Program(
        name="cnn",
        shared=tuple(Slot(f"w{i}", shape, np.float32) for i, shape in enumerate(shapes)),
        local=(),
        batch=(Slot("images", (batch, 16, 16, 3), np.float32), Slot("labels", (batch,), np.int32)),
        step=step,
        update=lambda shared, local, gradients: ([w - 0.1 * g for w, g in zip(shared, gradients, strict=True)], {}),
        needs_key=True,
    )
