"""Networks that no figure of the model was fitted on, as programs of the core: small, and of every common kind."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from openipu.program import Program, Slot, marks


def training(name, forward, weights, batch, dtype=np.float32) -> Program:
    """Training of a network with momentum.

    Args:
      name: of the program.
      forward: (weights by name, batch) -> what is summed up as the loss.
      weights: shapes by name.
      batch: the shape of a micro-batch.
      dtype: of everything.
    """
    names = list(weights)
    shared = [Slot(f"{prefix}{n}/kernel:0", weights[n], dtype) for prefix in ("", "momentum/") for n in names]

    def loss(values, x):
        return jnp.mean(jnp.square(forward(dict(zip(names, values, strict=True)), x).astype(jnp.float32)))

    def step(shared, local, fed, key):
        value, gradients = jax.value_and_grad(loss)(list(shared[: len(names)]), fed[0])
        return gradients, [], [value]

    def update(shared, local, gradients):
        old, momenta = shared[: len(names)], shared[len(names) :]
        momenta = [m * jnp.asarray(0.9, m.dtype) + g for m, g in zip(momenta, gradients, strict=True)]
        return [*(w - m * jnp.asarray(0.1, m.dtype) for w, m in zip(old, momenta, strict=True)), *momenta], {}

    return Program(name, tuple(shared), (), (Slot("x", batch, dtype),), step, update)


def mlp(batch=32, dtype=np.float32, scale=1):
    """Three dense layers."""
    sizes = [784, 512 * scale, 256 * scale, 10]
    weights = {f"dense{i}": pair for i, pair in enumerate(itertools.pairwise(sizes))}

    def forward(w, x):
        for name in weights:
            with marks.layer(name):
                x = jnp.maximum(x @ w[name], 0)
        return x

    return training("mlp", forward, weights, (batch, 784), dtype)


def transformer(batch=4, dtype=np.float32, scale=1):
    """Two blocks of attention and feed-forward layers over 64 positions."""
    width, heads, sequence = 128 * scale, 4, 64
    each = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    weights = {f"block{i}/{name}": shape for i in range(2) for name, shape in each.items()}

    def norm(x):
        mean = x.mean(-1, keepdims=True)
        return (x - mean) * lax.rsqrt(jnp.square(x - mean).mean(-1, keepdims=True) + jnp.asarray(1e-5, x.dtype))

    def forward(w, x):
        for i in range(2):
            with marks.layer(f"block{i}/attention"):
                made = (norm(x) @ w[f"block{i}/qkv"]).reshape(*x.shape[:2], 3, heads, width // heads)
                q, k, v = (made[:, :, j].transpose(0, 2, 1, 3) for j in range(3))
                seen = jax.nn.softmax(q @ k.swapaxes(-1, -2)) @ v
                x = x + seen.transpose(0, 2, 1, 3).reshape(x.shape) @ w[f"block{i}/out"]
            with marks.layer(f"block{i}/feed"):
                x = x + jax.nn.gelu(norm(x) @ w[f"block{i}/up"]) @ w[f"block{i}/down"]
        return x

    return training("transformer", forward, weights, (batch, sequence, width), dtype)


def convolved(x, w, stride=1, groups=1):
    return lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups
    )


def unet(batch=2, dtype=np.float32, scale=1):
    """Down twice and up again, joined at every level."""
    a, b, c = 16 * scale, 32 * scale, 64 * scale
    weights = {
        "down0": (3, 3, 3, a), "down1": (3, 3, a, b), "bottom": (3, 3, b, c), "up1": (3, 3, c + b, b),
        "up0": (3, 3, b + a, a), "head": (1, 1, a, 1),
    }  # fmt: skip

    def forward(w, x):
        kept = []
        for name in ("down0", "down1"):
            with marks.layer(name):
                x = jax.nn.relu(convolved(x, w[name]))
                kept.append(x)
                x = lax.reduce_window(x, np.asarray(-np.inf, x.dtype), lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        with marks.layer("bottom"):
            x = jax.nn.relu(convolved(x, w["bottom"]))
        for name in ("up1", "up0"):
            with marks.layer(name):
                x = jnp.repeat(jnp.repeat(x, 2, 1), 2, 2)
                x = jax.nn.relu(convolved(jnp.concatenate([x, kept.pop()], -1), w[name]))
        with marks.layer("head"):
            return convolved(x, w["head"])

    return training("unet", forward, weights, (batch, 64, 64, 3), dtype)


def depthwise(batch=2, dtype=np.float32, scale=1):
    """Inverted bottlenecks, as EfficientNets have them."""
    narrow, wide = 24 * scale, 144 * scale
    each = {"expand": (1, 1, narrow, wide), "depth": (3, 3, 1, wide), "project": (1, 1, wide, narrow)}
    weights = {"stem": (3, 3, 3, narrow)} | {f"block{i}/{n}": s for i in range(3) for n, s in each.items()}

    def forward(w, x):
        with marks.layer("stem"):
            x = jax.nn.silu(convolved(x, w["stem"], 2))
        for i in range(3):
            with marks.layer(f"block{i}"):
                made = jax.nn.silu(convolved(x, w[f"block{i}/expand"]))
                made = jax.nn.silu(convolved(made, w[f"block{i}/depth"], groups=wide))
                x = x + convolved(made, w[f"block{i}/project"])
        return x

    return training("depthwise", forward, weights, (batch, 64, 64, 3), dtype)


def lstm(batch=8, dtype=np.float32, scale=1):
    """One recurrent layer over 20 positions."""
    width, steps = 128 * scale, 20
    weights = {"lstm/input": (width, 4 * width), "lstm/hidden": (width, 4 * width)}

    def forward(w, x):
        with marks.layer("lstm"):
            projected = jnp.swapaxes(x @ w["lstm/input"], 0, 1)

            def cell(state, z):
                hidden, memory = state
                i, f, g, o = jnp.split(z + hidden @ w["lstm/hidden"], 4, axis=-1)
                memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
                hidden = jax.nn.sigmoid(o) * jnp.tanh(memory)
                return (hidden, memory), hidden

            zero = jnp.zeros((x.shape[0], width), x.dtype)
            return lax.scan(cell, (zero, zero), projected)[1]

    return training("lstm", forward, weights, (batch, steps, width), dtype)


NETWORKS = (mlp, transformer, unet, depthwise, lstm)
