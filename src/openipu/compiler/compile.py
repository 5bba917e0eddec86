"""Compile an execution with XLA for the devices that exist."""

import logging
import time
from collections.abc import Callable

import attrs
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from openipu.compiler import loaded, passes, progress
from openipu.compiler.cache import Cache
from openipu.compiler.execution import build, feed_shapes, traced_step
from openipu.compiler.key import key_of, surroundings
from openipu.compiler.pipeline import devices_for
from openipu.program import OutputMode, Plan, Program
from openipu.program.replica import AXIS

log = logging.getLogger("openipu.cache")


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
    call: Callable
    shared_sharding: Sharding
    local_sharding: Sharding
    feed_sharding: Sharding
    seconds: float
    rows: int | None = None


def compile_program(program: Program, plan: Plan, rows: int | None = None, cache: Cache | None = None) -> Executable:
    """Compile a program for a plan; replicas are spread over as many JAX devices as divide them evenly.

    Args:
      program, plan: what to compile.
      rows: feed row numbers, and the data once, as tables of so many rows; only for a plan on one JAX device.
      cache: where the executable is looked for first, and kept.
    """
    key = key_of(program, plan, rows) if cache is not None else None
    if cache is None or key is None:
        return _compiled(program, plan, rows)
    executable = _from_cache(program, plan, rows, cache, key)
    if executable is None:
        with cache.compiling(key):
            # Another process may have compiled it while this one waited.
            executable = _from_cache(program, plan, rows, cache, key)
            if executable is None:
                executable = _compiled(program, plan, rows)
                _keep(executable, cache, key)
    return executable


def _compiled(program: Program, plan: Plan, rows: int | None) -> Executable:
    started = time.perf_counter()
    places = _places(plan)
    with jax.enable_x64(True):
        progress.begin("Lowering")
        step, structure = traced_step(program, plan)
        progress.begin("Passes")
        step = passes.optimise(step, jax.default_backend())
        progress.begin("XLA Compilation")
        lanes = () if plan.replicas == 1 else (plan.replicas,)
        arguments = (
            [s.abstract for s in program.shared],
            [jax.ShapeDtypeStruct((*lanes, *s.shape), s.dtype) for s in program.local],
            feed_shapes([s.abstract for s in program.batch], plan, rows),
            jax.ShapeDtypeStruct(lanes, np.uint64),
        )
        feeds = places.feeds if rows is None else [places.feeds] + [places.shared] * len(program.batch)
        compiled = (
            jax.jit(
                build(program, plan, step, structure, rows is not None),
                donate_argnums=(0, 1) if program.update is not None else (1,),
                in_shardings=(places.shared, places.local, feeds, places.local),
                out_shardings=_results(plan, places),
                keep_unused=True,
            )
            .lower(*arguments)
            .compile()
        )
    progress.finish()
    seconds = time.perf_counter() - started
    return Executable(program, plan, compiled, places.shared, places.local, places.feeds, seconds, rows)


def _keep(executable: Executable, cache: Cache, key: str) -> None:
    assert isinstance(executable.call, jax.stages.Compiled)
    data = loaded.serialise(executable.call)
    if data is None:
        log.info("%s prints from the device, so its executable is not kept in the cache.", executable.program.name)
        return
    shapes = [[list(value.shape) for value in group] for group in executable.call.out_info]
    name, seconds = executable.program.name, executable.seconds
    cache.store(key, {"name": name, "seconds": seconds, "shapes": shapes, **surroundings()}, data)


def _from_cache(program: Program, plan: Plan, rows: int | None, cache: Cache, key: str) -> Executable | None:
    started = time.perf_counter()
    found = cache.load(key)
    if found is None:
        return None
    header, data = found
    places = _places(plan)
    shapes = tuple(tuple(tuple(shape) for shape in group) for group in header["shapes"])
    results = loaded.Results(shapes, _results(plan, places))
    call = loaded.load(data, list(_mesh(plan.replicas).devices.flat), results)
    seconds = time.perf_counter() - started
    log.info("Loaded the executable of %s from %s.", program.name, cache.path(key))
    return Executable(program, plan, call, places.shared, places.local, places.feeds, seconds, rows)


@attrs.frozen
class _Places:
    shared: Sharding
    local: Sharding
    feeds: Sharding


def _places(plan: Plan) -> _Places:
    """Where values of each kind live."""
    mesh = _mesh(plan.replicas)
    if mesh.size == 1:
        device = SingleDeviceSharding(mesh.devices.flat[0])
        return _Places(device, device, device)
    return _Places(
        NamedSharding(mesh, PartitionSpec()),
        NamedSharding(mesh, PartitionSpec(AXIS)),
        NamedSharding(mesh, PartitionSpec(None, AXIS)),
    )


def _results(plan: Plan, places: _Places) -> tuple[Sharding, ...]:
    """Where an execution leaves shared and local state, outputs, and what is computed once at its end."""
    return places.shared, places.local, places.local if plan.outputs is OutputMode.FINAL else places.feeds, places.local


def on_one_device(plan: Plan) -> bool:
    """Whether all of a plan runs on a single JAX device."""
    return devices_for(plan) is None and _spread(plan.replicas) == 1


def _spread(replicas: int) -> int:
    """The largest number of devices that carries the same number of replicas each."""
    return max(n for n in range(1, min(replicas, len(jax.devices())) + 1) if replicas % n == 0)


def _mesh(replicas: int) -> Mesh:
    return Mesh(np.array(jax.devices()[: _spread(replicas)]), (AXIS,))
