"""Compile an execution with XLA for the devices that exist."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from openipu.compiler import entry, libraries, loaded, passes, progress
from openipu.compiler.cache import Cache
from openipu.compiler.execution import build, feed_shapes, traced_step
from openipu.compiler.key import key_of, surroundings
from openipu.compiler.pipeline import devices_for
from openipu.errors import UnsupportedError
from openipu.program import OutputMode, Plan, Program
from openipu.program.replica import AXIS

log = logging.getLogger("openipu.cache")

_JAX = "it may come from JAX's own cache (JAX_COMPILATION_CACHE_DIR=%s), and what comes from there cannot be stored"


@attrs.frozen(eq=False)
class Executable:
    """A program and a plan, compiled.

    Attributes:
      program, plan: what was compiled.
      call: (shared, local, feeds, seeds) -> (shared, local, outputs, finished); the first two are donated.
      shared_sharding, local_sharding, feed_sharding: where the arguments live.
      seconds: how long building and compiling took.
      shapes: what its results are like: shared, local, outputs, finished.
      rows: the size of the tables that the feeds choose rows from; None when the feeds are the data themselves.
      file: where the cache keeps it; None when it does not.
    """

    program: Program
    plan: Plan
    call: Callable
    shared_sharding: Sharding
    local_sharding: Sharding
    feed_sharding: Sharding
    seconds: float
    shapes: loaded.Shapes
    rows: int | None = None
    file: Path | None = None


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
    seen = cache.stamp(key)
    executable = _from_cache(program, plan, rows, cache, key)
    if executable is not None:
        return executable
    with cache.compiling(key):
        # Another process may have compiled it meanwhile.
        executable = _from_cache(program, plan, rows, cache, key) if cache.stamp(key) != seen else None
        return executable or _keep(_compiled(program, plan, rows), cache, key)


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
        # Over replicas, products have one axis more than the step shows.
        options = libraries.options(step, jax.default_backend()) if plan.replicas == 1 else {}
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
            .compile(compiler_options=options)
        )
    progress.finish()
    seconds = time.perf_counter() - started
    shapes = loaded.shapes_of(compiled)
    return Executable(program, plan, compiled, places.shared, places.local, places.feeds, seconds, shapes, rows)


def _keep(executable: Executable, cache: Cache, key: str) -> Executable:
    if (folder := loaded.jax_cache()) is not None:
        log.warning(
            "The executable of %s is not kept in the cache: %s. Use one of the two.",
            executable.program.name,
            _JAX % folder,
        )
        return executable
    data = loaded.serialise(executable.call)
    if data is None:
        log.info("%s prints from the device, so its executable is not kept in the cache.", executable.program.name)
        return executable
    return attrs.evolve(executable, file=cache.store(key, _header(executable), data))


def _header(executable: Executable) -> dict[str, Any]:
    described = {"name": executable.program.name, "seconds": executable.seconds}
    return {**described, "shapes": loaded.to_json(executable.shapes), **surroundings()}


def export(executable: Executable) -> bytes:
    """An executable as an entry of a cache, for a file of its own."""
    folder = loaded.jax_cache()
    if folder is not None and not isinstance(executable.call, loaded.Loaded):
        raise UnsupportedError(
            f"The executable of {executable.program.name} cannot be stored: {_JAX % folder}. Unset it."
        )
    key = key_of(executable.program, executable.plan, executable.rows)
    data = loaded.serialise(executable.call) if key is not None else None
    if data is None:
        raise UnsupportedError(
            f"The executable of {executable.program.name} cannot be stored: it calls functions of this process, as "
            "custom operations and printing from the device do. Export a model without them."
        )
    return entry.pack({**_header(executable), "key": key}, data)


def _from_cache(program: Program, plan: Plan, rows: int | None, cache: Cache, key: str) -> Executable | None:
    started = time.perf_counter()
    found = cache.load(key)
    if found is None:
        return None
    header, data = found
    places = _places(plan)
    path = cache.path(key)
    try:
        shapes = loaded.from_json(header["shapes"])
        call = loaded.load(data, list(_mesh(plan.replicas).devices.flat), shapes, _results(plan, places))
    except (jax.errors.JaxRuntimeError, KeyError, TypeError, ValueError) as error:
        log.warning("The cached executable %s cannot be loaded: %s. It is compiled again.", path, error)
        return None
    seconds = time.perf_counter() - started
    log.info("Loaded the executable of %s from %s.", program.name, path)
    return Executable(program, plan, call, places.shared, places.local, places.feeds, seconds, shapes, rows, path)


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
