"""Compile an execution with XLA for the devices that exist."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import jax
import numpy as np

from openipu import instances
from openipu.compiler import cache_file, libraries, passes, progress, serialised, spread
from openipu.compiler.cache import Cache
from openipu.compiler.execution import build, expected_lanes, feed_shapes, traced_step
from openipu.compiler.inspection import Inspection, Notes, naming
from openipu.compiler.key import key_of, surroundings
from openipu.compiler.pipeline import devices_for
from openipu.compiler.spread import Places
from openipu.errors import UnsupportedError
from openipu.program import Plan, Program
from openipu.program.replica import Spread

log = logging.getLogger("openipu.cache")

_JAX = "it may come from JAX's own cache (JAX_COMPILATION_CACHE_DIR=%s), and what comes from there cannot be stored"


@attrs.frozen(eq=False)
class Executable:
    """A program and a plan, compiled.

    Attributes:
      program, plan: what was compiled.
      spread: how the replicas are spread over the devices there are.
      call: (shared, local, feeds, seeds) -> (shared, local, outputs, finished, first). Nothing is donated: the values
        from before stay until those from after are known to be good.
      places: where the arguments live.
      seconds: how long building and compiling took.
      shapes: what its results are like: shared, local, outputs, finished, first.
      rows: the size of the tables that the feeds choose rows from; None when the feeds are the data themselves.
      file: where the cache keeps it; None when it does not.
      notes: of who looked at the step, kept with it.
    """

    program: Program
    plan: Plan
    spread: Spread
    call: Callable
    places: Places
    seconds: float
    shapes: serialised.Shapes
    rows: int | None = None
    file: Path | None = None
    notes: Notes = attrs.field(factory=dict)


def compile_program(
    program: Program,
    plan: Plan,
    rows: int | None = None,
    cache: Cache | None = None,
    inspection: Inspection | None = None,
) -> Executable:
    """Compile a program for a plan; replicas are spread over as many JAX devices as divide them evenly.

    Args:
      program, plan: what to compile.
      rows: feed row numbers, and the data once, as tables of so many rows; only for a plan on one JAX device.
      cache: where the executable is looked for first, and kept.
      inspection: looks at the step of one replica, or at what was noted of it; may refuse by raising.
    """
    together = plan.instances > 1 and program.together
    if together:
        tables = f", tables of {rows} rows" if rows is not None else ""
        instances.equal(f"{program.name}, {plan}, {spread.here(plan)}{tables}", "compiling a program")
    key = key_of(program, plan, rows) if cache is not None else None
    if cache is None or key is None:
        return _compiled(program, plan, rows, inspection)
    if not together:
        return _found_or_compiled(program, plan, rows, cache, key, inspection)
    if instances.position() > 0:
        # The first one compiles; of those that do not see its folder, one on each host does.
        instances.synchronize(f"compiled {key}")
        return _found_or_compiled(program, plan, rows, cache, key, inspection)
    try:
        return _found_or_compiled(program, plan, rows, cache, key, inspection)
    finally:
        instances.synchronize(f"compiled {key}")


def _found_or_compiled(
    program: Program, plan: Plan, rows: int | None, cache: Cache, key: str, inspection: Inspection | None
) -> Executable:
    seen = cache.stamp(key)
    executable = _from_cache(program, plan, rows, cache, key, inspection)
    if executable is not None:
        return executable
    with cache.locked(key):
        # Another process may have compiled it meanwhile.
        changed = cache.stamp(key) != seen
        executable = _from_cache(program, plan, rows, cache, key, inspection) if changed else None
        return executable or _keep(_compiled(program, plan, rows, inspection), cache, key)


def _compiled(program: Program, plan: Plan, rows: int | None, inspection: Inspection | None) -> Executable:
    started = time.perf_counter()
    here = spread.here(plan)
    places = spread.places(here)
    with jax.enable_x64(True):
        progress.begin("Lowering")
        with naming(inspection):
            traced, structure = traced_step(program, here, plan.stochastic_rounding)
        progress.begin("Passes")
        step = passes.optimise(traced, jax.default_backend(), expected_lanes(program, plan, here))
        progress.begin("XLA Compilation")
        arguments = (
            [s.abstract for s in program.shared],
            [jax.ShapeDtypeStruct(plan.everyone.shape(s.shape), s.dtype) for s in program.local],
            feed_shapes([s.abstract for s in program.batch], plan, rows),
            jax.ShapeDtypeStruct(plan.everyone.axes, np.uint64),
        )
        # Over replicas, products have one axis more than the step shows.
        options = libraries.options(step, jax.default_backend()) if not here.layout.axes else {}
        feeds = places.feeds if rows is None else [places.feeds] + [places.shared] * len(program.batch)
        execution = build(program, plan, here, step, structure, rows is not None)
        execution = spread.over_devices(execution, plan, here, None if rows is None else len(program.batch))
        if here.devices == 1:
            execution = passes.finish(execution, arguments, jax.default_backend())
        lowered = jax.jit(
            execution,
            in_shardings=(places.shared, places.local, feeds, places.local),
            out_shardings=spread.results(plan, places),
            keep_unused=True,
        ).lower(*arguments)
        noted = inspection.traced(traced, structure) if inspection is not None else dict
        compiled = lowered.compile(compiler_options=options)
        notes = noted()
    progress.finish()
    seconds = time.perf_counter() - started
    shapes = serialised.shapes_of(compiled)
    return Executable(program, plan, here, compiled, places, seconds, shapes, rows, notes=notes)


def _keep(executable: Executable, cache: Cache, key: str) -> Executable:
    if (folder := serialised.jax_cache()) is not None:
        log.warning(
            "The executable of %s is not kept in the cache: %s. Use one of the two.",
            executable.program.name,
            _JAX % folder,
        )
        return executable
    data = serialised.serialise(executable.call)
    if data is None:
        log.info("%s prints from the device, so its executable is not kept in the cache.", executable.program.name)
        return executable
    return attrs.evolve(executable, file=cache.store(key, _header(executable), data))


def _header(executable: Executable) -> dict[str, Any]:
    described = {"name": executable.program.name, "seconds": executable.seconds}
    described |= {"shapes": serialised.to_json(executable.shapes), "notes": executable.notes}
    return {**described, **surroundings()}


def export(executable: Executable) -> bytes:
    """An executable as an entry of a cache, for a file of its own."""
    folder = serialised.jax_cache()
    if folder is not None and not isinstance(executable.call, serialised.Loaded):
        raise UnsupportedError(
            f"The executable of {executable.program.name} cannot be stored: {_JAX % folder}. Unset it."
        )
    key = key_of(executable.program, executable.plan, executable.rows)
    data = serialised.serialise(executable.call) if key is not None else None
    if data is None:
        raise UnsupportedError(
            f"The executable of {executable.program.name} cannot be stored: it calls functions of this process, as "
            "custom operations and printing from the device do. Export a model without them."
        )
    return cache_file.pack({**_header(executable), "key": key}, data)


def restore(program: Program, plan: Plan, entry: bytes) -> Executable:
    """The executable that `export` wrote, for a program of which only the slots need to be known.

    Raises:
      cache_file.BadEntry: the bytes are not whole, or were made on another machine or by other versions.
    """
    header, data = cache_file.unpack(entry)
    differences = [name for name, value in surroundings().items() if header.get(name) != value]
    if differences:
        raise cache_file.BadEntry(f"it was compiled under other conditions ({', '.join(differences)})")
    try:
        return _loaded(program, plan, None, header, data, None)
    except (jax.errors.JaxRuntimeError, KeyError, TypeError, ValueError) as error:
        raise cache_file.BadEntry(f"XLA cannot load it: {error}") from error


def _loaded(
    program: Program, plan: Plan, rows: int | None, header: dict[str, Any], data: bytes, path: Path | None
) -> Executable:
    started = time.perf_counter()
    here = spread.here(plan)
    places = spread.places(here)
    shapes = serialised.from_json(header["shapes"])
    call = serialised.load(data, places.devices, shapes, spread.results(plan, places))
    seconds = time.perf_counter() - started
    return Executable(program, plan, here, call, places, seconds, shapes, rows, path, header.get("notes", {}))


def _from_cache(
    program: Program, plan: Plan, rows: int | None, cache: Cache, key: str, inspection: Inspection | None
) -> Executable | None:
    found = cache.load(key)
    if found is None:
        return None
    path = cache.path(key)
    try:
        executable = _loaded(program, plan, rows, *found, path)
        _check_shapes(executable.shapes, program)
    except Exception as error:
        # Whatever the file holds: there is another way to the executable.
        log.warning("The cached executable %s cannot be loaded: %s. It is compiled again.", path, error)
        return None
    log.info("Loaded the executable of %s from %s.", program.name, path)
    if inspection is not None:
        inspection.loaded(executable.notes)
    return executable


def _check_shapes(shapes: serialised.Shapes, program: Program) -> None:
    """Refuse results that are not those of the program, though the key is its."""
    shared, local, *others = ([tuple(v.shape) for v in group] for group in shapes)
    # Weights that nothing trains are no results.
    if shared not in ([], [s.shape for s in program.shared]) or len(local) != len(program.local) or len(others) < 2:
        raise ValueError(f"its results are not those of {program.name}")


def on_one_device(plan: Plan) -> bool:
    """Whether all that this process does of a plan runs on a single JAX device."""
    return devices_for(plan) is None and spread.here(plan).lanes == plan.replicas
