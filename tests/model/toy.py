"""A small network as a program of the core, with stages, layers and an optimizer with momentum."""

import jax
import jax.numpy as jnp
import numpy as np

from openipu.program import Pipeline, Plan, Program, Schedule, Slot, marks


def network(width=256, layers=4, batch=32, stages=0, kept=False, dtype=np.float32) -> Program:
    """Dense layers with biases and ReLU, trained with momentum."""
    weights = [Slot(f"dense{i}/kernel:0", (width, width), dtype) for i in range(layers)]
    momenta = [Slot(f"momentum/dense{i}/kernel:0", (width, width), dtype) for i in range(layers)]

    def forward(values, x):
        for i, weight in enumerate(values):
            stage = i * max(1, stages) // layers
            with marks.part(stage) if stages else marks.layer(""), marks.layer(f"dense{i}"):
                x = jnp.maximum(x @ weight, 0)
            if kept and i % 2:
                with marks.kept():
                    x = jnp.copy(x)
        return jnp.mean(jnp.square(x.astype(jnp.float32)))

    def step(shared, local, fed, key):
        loss, gradients = jax.value_and_grad(forward)(list(shared[:layers]), fed[0])
        return gradients, [], [loss]

    def update(shared, local, gradients):
        momentum = [0.9 * m + g for m, g in zip(shared[layers:], gradients, strict=True)]
        return [*(w - 0.1 * m for w, m in zip(shared[:layers], momentum, strict=True)), *momentum], {}

    batch_slot = Slot("x", (batch, width), dtype)
    return Program("network/train", (*weights, *momenta), (), (batch_slot,), step, update)


def pipelined(stages: int, count: int = 8, schedule=Schedule.GROUPED, recompute=False, **plan) -> Plan:
    """A plan with one stage on each IPU."""
    pipeline = Pipeline(stages, schedule, tuple(range(stages)), recompute)
    return Plan(device_iterations=count, gradient_accumulation=count, pipeline=pipeline, **plan)
