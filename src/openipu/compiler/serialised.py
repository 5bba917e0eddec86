"""An executable as XLA's bytes, and back: called like the one that was compiled."""

from collections.abc import Sequence
from typing import Any

import attrs
import jax
import jax.numpy as jnp
from jax.sharding import Sharding

from openipu.jax_boundary import load_executable, setting

Values = list[jax.Array]

# How XLA's text names calls back into Python; their addresses mean nothing in another process.
_CALLBACK = "python_cpu_callback"


# For each group of an execution's results (shared, local, outputs, finished, first) what its values are like.
Shapes = tuple[tuple[jax.ShapeDtypeStruct, ...], ...]


@attrs.frozen(eq=False)
class Loaded:
    """An executable that was not compiled by this process.

    Attributes:
      executable: XLA's.
      data: the bytes it was made of. What XLA makes of a loaded executable cannot always be loaded again.
      shapes: of the results.
      shardings: where each group of results is.
    """

    executable: Any
    data: bytes = attrs.field(repr=False)
    shapes: Shapes
    shardings: tuple[Sharding, ...]

    def __call__(self, shared: Values, local: Values, feeds: Values, seeds: Any) -> tuple[Values, ...]:
        flat = [*shared, *local, *feeds, seeds]
        made = iter(self.executable.execute_sharded(flat).disassemble_into_single_device_arrays())
        pairs = zip(self.shapes, self.shardings, strict=True)
        return tuple([_whole(value.shape, where, next(made)) for value in group] for group, where in pairs)


def serialise(call: Any) -> bytes | None:
    """The bytes of an executable that was compiled or loaded; None if it calls back into this process."""
    if isinstance(call, Loaded):
        return call.data
    text = call.as_text()
    return None if text is None or _CALLBACK in text else call.runtime_executable().serialize()


def jax_cache() -> str | None:
    """The folder of JAX's own cache, if it has one: what comes from there runs, but cannot be stored again."""
    return setting("jax_compilation_cache_dir") if setting("jax_enable_compilation_cache") else None


def load(data: bytes, devices: Sequence[Any], shapes: Shapes, shardings: tuple[Sharding, ...]) -> Loaded:
    """An executable from bytes that this library wrote; whoever calls this has checked that they are unchanged."""
    return Loaded(load_executable(data, devices), data, shapes, shardings)


def shapes_of(compiled: jax.stages.Compiled) -> Shapes:
    """What the results of a compiled execution are like."""
    return tuple(tuple(jax.ShapeDtypeStruct(v.shape, v.dtype) for v in group) for group in compiled.out_info)


def to_json(shapes: Shapes) -> list:
    """Shapes as text can hold them."""
    return [[[list(v.shape), str(v.dtype)] for v in group] for group in shapes]


def from_json(described: list) -> Shapes:
    """The shapes that `to_json` described."""
    return tuple(tuple(jax.ShapeDtypeStruct(tuple(s), jnp.dtype(d)) for s, d in group) for group in described)


def _whole(shape: tuple[int, ...], where: Sharding, pieces: list[jax.Array]) -> jax.Array:
    if len(where.device_set) == 1:
        return pieces[0]
    return jax.make_array_from_single_device_arrays(shape, where, pieces)
