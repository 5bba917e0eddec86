"""A small program of the core, written in JAX with its gradients, stages marked by hand."""

import jax
import jax.numpy as jnp
import numpy as np

from openipu.program import Program, Slot, marks
from openipu.runtime import Resident

BATCH, WIDTH, LAYERS = 4, 6, 4


def program(stages: int = 1, training: bool = True, noise: float = 0.0) -> Program:
    """A tanh network trained by momentum; a running mean and a loss sum are its local state."""
    of = [layer * stages // LAYERS for layer in range(LAYERS)]

    def step(shared, local, batch, key):
        weights = shared[:LAYERS]
        running, total = local
        x, y = batch
        activations = [x]
        for layer, w in enumerate(weights):
            with marks.part(of[layer]):
                h = jnp.tanh(activations[-1] @ w)
                if layer == 0:
                    running = 0.9 * running + 0.1 * h.mean(0)
                    h = h + noise * jax.random.normal(key, h.shape, jnp.float32)
                activations.append(h)
        error = activations[-1] - y
        loss = (error**2).mean()
        total = total + loss
        if not training:
            return [], [running, total], [activations[-1]]
        with marks.part(stages):
            d = 2 * error / error.size
        gradients = []
        for layer in reversed(range(LAYERS)):
            with marks.part(2 * stages - 1 - of[layer]):
                out = activations[layer + 1] if layer or not noise else jnp.tanh(x @ weights[0])
                d = d * (1 - out**2)
                gradients.append(activations[layer].T @ d)
                d = d @ weights[layer].T
        return gradients[::-1], [running, total], [loss]

    def update(shared, local, gradients):
        weights, momentum, count = shared[:LAYERS], shared[LAYERS : 2 * LAYERS], shared[-1]
        momentum = [0.9 * m + g for m, g in zip(momentum, gradients, strict=True)]
        rate = 0.1 / (1 + 0.01 * count.astype(jnp.float32))
        return [*(w - rate * m for w, m in zip(weights, momentum, strict=True)), *momentum, count + 1], {}

    square = [Slot(f"w{i}", (WIDTH, WIDTH), "float32") for i in range(LAYERS)]
    moments = [Slot(f"m{i}", (WIDTH, WIDTH), "float32") for i in range(LAYERS)]
    return Program(
        name="toy",
        shared=(*square, *moments, Slot("count", (), "int32")) if training else tuple(square),
        local=(Slot("running", (WIDTH,), "float32"), Slot("total", (), "float32")),
        batch=(Slot("x", (BATCH, WIDTH), "float32"), Slot("y", (BATCH, WIDTH), "float32")),
        step=step,
        update=update if training else None,
        finish=lambda shared, local: [local[1]],
    )


class Store:
    """Host values and their residents."""

    def __init__(self, program: Program, seed: int = 0):
        generator = np.random.default_rng(seed)
        self.values = {}
        for slot in (*program.shared, *program.local):
            weight = slot.name.startswith("w")
            start = generator.standard_normal(slot.shape) / 2 if weight else np.zeros(slot.shape)
            self.values[slot.name] = start.astype(slot.dtype)
        self.shared = [self._resident(s.name) for s in program.shared]
        self.local = [self._resident(s.name) for s in program.local]

    def _resident(self, name: str) -> Resident:
        return Resident(lambda: self.values[name], lambda value: self.values.update({name: np.array(value)}))

    def home(self) -> dict[str, np.ndarray]:
        for resident in (*self.shared, *self.local):
            resident.bring_home()
        return self.values


def feeds(steps: int, replicas: int = 1, seed: int = 1) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    lead = (steps,) if replicas == 1 else (steps, replicas)
    return [generator.standard_normal((*lead, BATCH, WIDTH)).astype(np.float32) for _ in range(2)]


def reference(store: dict, feeds: list, accumulation: int, replicas: int, reduction: str = "sum") -> dict:
    """The same training in NumPy, float64, one micro-batch at a time."""
    values = {k: np.array(v, np.float64) for k, v in store.items()}
    steps = len(feeds[0])
    lanes = [(values["running"].copy(), 0.0) for _ in range(replicas)]
    losses = []
    for start in range(0, steps, accumulation):
        sums = [np.zeros((WIDTH, WIDTH)) for _ in range(LAYERS)]
        for step in range(start, start + accumulation):
            for lane in range(replicas):
                x, y = (f[step] if replicas == 1 else f[step, lane] for f in feeds)
                acts = [x.astype(np.float64)]
                for i in range(LAYERS):
                    acts.append(np.tanh(acts[-1] @ values[f"w{i}"]))
                running, total = lanes[lane]
                error = acts[-1] - y
                loss = (error**2).mean()
                lanes[lane] = (0.9 * running + 0.1 * acts[1].mean(0), total + loss)
                losses.append(loss)
                d = 2 * error / error.size
                for i in reversed(range(LAYERS)):
                    d = d * (1 - acts[i + 1] ** 2)
                    scale = 1 if reduction == "sum" else 1 / accumulation
                    sums[i] += acts[i].T @ d * scale
                    d = d @ values[f"w{i}"].T
        rate = 0.1 / (1 + 0.01 * values["count"])
        for i in range(LAYERS):
            values[f"m{i}"] = 0.9 * values[f"m{i}"] + sums[i]
            values[f"w{i}"] = values[f"w{i}"] - rate * values[f"m{i}"]
        values["count"] = values["count"] + 1
    values["running"], values["total"] = lanes[0]
    values["totals"] = np.array([total for _, total in lanes])
    values["losses"] = np.array(losses)
    return values
