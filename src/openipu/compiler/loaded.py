"""An executable as XLA's bytes, and back: called like the one that was compiled."""

from collections.abc import Sequence
from typing import Any

import attrs
import jax
from jax.sharding import Sharding

Values = list[jax.Array]

# How XLA's text names calls back into Python; their addresses mean nothing in another process.
_CALLBACK = "python_cpu_callback"


@attrs.frozen(eq=False)
class Results:
    """What an execution returns: for each of its groups (shared, local, outputs, finished) the shapes and the place."""

    shapes: tuple[tuple[tuple[int, ...], ...], ...]
    shardings: tuple[Sharding, ...]


@attrs.frozen(eq=False)
class Loaded:
    """An executable that was not compiled by this process."""

    executable: Any
    results: Results

    def __call__(self, shared: Values, local: Values, feeds: Values, seeds: Any) -> tuple[Values, ...]:
        flat = [*shared, *local, *feeds, seeds]
        made = iter(self.executable.execute_sharded(flat).disassemble_into_single_device_arrays())
        pairs = zip(self.results.shapes, self.results.shardings, strict=True)
        return tuple([_whole(shape, where, next(made)) for shape in group] for group, where in pairs)


def serialise(compiled: jax.stages.Compiled) -> bytes | None:
    """The bytes of a compiled executable; None if it calls back into this process."""
    text = compiled.as_text()
    if text is None or _CALLBACK in text:
        return None
    executable: Any = compiled.runtime_executable()
    return executable.serialize()


def load(data: bytes, devices: Sequence[Any], results: Results) -> Loaded:
    """An executable from bytes that this library wrote; whoever calls this has checked that they are unchanged."""
    return Loaded(devices[0].client.deserialize_executable(data, devices), results)


def _whole(shape: tuple[int, ...], where: Sharding, pieces: list[jax.Array]) -> jax.Array:
    if len(pieces) == 1:
        return pieces[0]
    return jax.make_array_from_single_device_arrays(shape, where, pieces)
