"""Compile an execution with XLA for the devices that exist."""

import time

import attrs
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from openipu.compiler.execution import build, feed_shapes
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
    """

    program: Program
    plan: Plan
    call: jax.stages.Compiled
    shared_sharding: jax.sharding.Sharding
    local_sharding: jax.sharding.Sharding
    feed_sharding: jax.sharding.Sharding
    seconds: float


def compile_program(program: Program, plan: Plan) -> Executable:
    """Compile a program for a plan; replicas are spread over as many JAX devices as divide them evenly."""
    started = time.perf_counter()
    with jax.enable_x64(True):
        mesh = _mesh(plan.replicas)
        shared_sharding = NamedSharding(mesh, PartitionSpec())
        lane = PartitionSpec(AXIS) if plan.replicas > 1 else PartitionSpec()
        local_sharding = NamedSharding(mesh, lane)
        feed_sharding = NamedSharding(mesh, PartitionSpec(None, *lane))
        execution = build(program, plan, jax.default_backend())
        lanes = () if plan.replicas == 1 else (plan.replicas,)
        arguments = (
            [s.abstract for s in program.shared],
            [jax.ShapeDtypeStruct((*lanes, *s.shape), s.dtype) for s in program.local],
            feed_shapes([s.abstract for s in program.batch], plan),
            jax.ShapeDtypeStruct(lanes, np.uint64),
        )
        compiled = (
            jax.jit(
                execution,
                donate_argnums=(0, 1) if program.update is not None else (1,),
                in_shardings=(shared_sharding, local_sharding, feed_sharding, local_sharding),
                out_shardings=(shared_sharding, local_sharding, None, None),
            )
            .lower(*arguments)
            .compile()
        )
    seconds = time.perf_counter() - started
    return Executable(program, plan, compiled, shared_sharding, local_sharding, feed_sharding, seconds)


def _mesh(replicas: int) -> Mesh:
    """The largest number of devices that carries the same number of replicas each."""
    devices = jax.devices()
    count = max(n for n in range(1, min(replicas, len(devices)) + 1) if replicas % n == 0)
    return Mesh(np.array(devices[:count]), (AXIS,))
