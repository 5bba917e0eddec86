"""Compile an execution with XLA for the devices that exist."""

import time

import attrs
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from openipu.compiler.execution import build, feed_shapes
from openipu.compiler.pipeline import devices_for
from openipu.program import Plan, Program
from openipu.program.replica import AXIS


@attrs.frozen(eq=False)
class Executable:
    """A program and a plan, compiled.

    Attributes:
      program, plan: what was compiled.
      call: (shared, local, feeds, seeds) -> (shared, local, outputs, finished); the first two are donated.
      shared_sharding, local_sharding, feed_sharding: where the arguments live.
      seconds: how long building and compiling took.
      rows: the size of the tables that the feeds choose rows from; None when the feeds are the data themselves.
    """

    program: Program
    plan: Plan
    call: jax.stages.Compiled
    shared_sharding: jax.sharding.Sharding
    local_sharding: jax.sharding.Sharding
    feed_sharding: jax.sharding.Sharding
    seconds: float
    rows: int | None = None


def compile_program(program: Program, plan: Plan, rows: int | None = None) -> Executable:
    """Compile a program for a plan; replicas are spread over as many JAX devices as divide them evenly.

    Args:
      program, plan: what to compile.
      rows: feed row numbers, and the data once, as tables of so many rows; only for a plan on one JAX device.
    """
    started = time.perf_counter()
    with jax.enable_x64(True):
        mesh = _mesh(plan.replicas)
        shared_sharding = NamedSharding(mesh, PartitionSpec())
        lane = PartitionSpec(AXIS) if plan.replicas > 1 else PartitionSpec()
        local_sharding = NamedSharding(mesh, lane)
        feed_sharding = NamedSharding(mesh, PartitionSpec(None, *lane))
        execution = build(program, plan, jax.default_backend(), rows is not None)
        lanes = () if plan.replicas == 1 else (plan.replicas,)
        arguments = (
            [s.abstract for s in program.shared],
            [jax.ShapeDtypeStruct((*lanes, *s.shape), s.dtype) for s in program.local],
            feed_shapes([s.abstract for s in program.batch], plan, rows),
            jax.ShapeDtypeStruct(lanes, np.uint64),
        )
        feeds = feed_sharding if rows is None else [feed_sharding] + [shared_sharding] * len(program.batch)
        compiled = (
            jax.jit(
                execution,
                donate_argnums=(0, 1) if program.update is not None else (1,),
                in_shardings=(shared_sharding, local_sharding, feeds, local_sharding),
                out_shardings=(shared_sharding, local_sharding, None, None),
            )
            .lower(*arguments)
            .compile()
        )
    seconds = time.perf_counter() - started
    return Executable(program, plan, compiled, shared_sharding, local_sharding, feed_sharding, seconds, rows)


def on_one_device(plan: Plan) -> bool:
    """Whether all of a plan runs on a single JAX device."""
    return devices_for(plan) is None and _spread(plan.replicas) == 1


def _spread(replicas: int) -> int:
    """The largest number of devices that carries the same number of replicas each."""
    return max(n for n in range(1, min(replicas, len(jax.devices())) + 1) if replicas % n == 0)


def _mesh(replicas: int) -> Mesh:
    return Mesh(np.array(jax.devices()[: _spread(replicas)]), (AXIS,))
