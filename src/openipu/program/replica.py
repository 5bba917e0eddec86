"""Replicas: the axes they are, what they tell each other, and how the values of one are laid out for all of them."""

import contextvars
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from openipu.contexts import during

# Replicas are lanes of a device, and devices (of one process, or of many) run together.
AXIS = "replica"
DEVICES = "device"


@attrs.frozen
class Spread:
    """How the replicas of a program are spread.

    Attributes:
      lanes: replicas of one device.
      devices: devices that run the program together, those of all instances.
      instances: processes they belong to, each with the same number of them.
    """

    lanes: int = 1
    devices: int = 1
    instances: int = 1

    @property
    def replicas(self) -> int:
        """All replicas of all devices."""
        return self.lanes * self.devices

    @property
    def layout(self) -> "Layout":
        """How the values of one device's replicas are laid out."""
        return Layout(self.lanes)

    @property
    def axis_names(self) -> list[tuple[str, int]]:
        """The axes that a step may communicate over, as `jax.make_jaxpr` wants them."""
        return [(name, size) for name, size in ((DEVICES, self.devices), (AXIS, self.lanes)) if size > 1]

    def mapped(self, function: Callable, in_axes: Any = 0, out_axes: Any = 0) -> Callable:
        """A function of one replica's values as one of all lanes'; traced knowing how the replicas are spread."""
        lanes = function
        if self.lanes > 1:
            lanes = jax.vmap(function, in_axes=in_axes, out_axes=out_axes, axis_name=AXIS, axis_size=self.lanes)

        def run(*arguments: Any) -> Any:
            with tracing_for(self):
                return lanes(*arguments)

        return run


ALONE = Spread()

_spread: contextvars.ContextVar[Spread] = contextvars.ContextVar("openipu_spread", default=ALONE)


def tracing_for(spread: Spread) -> AbstractContextManager[Spread]:
    """Trace for replicas that are spread so: lowerings of cross-replica operations ask for it."""
    return during(_spread, spread)


def count() -> int:
    """Replicas of the program being traced; with 1 there is nobody to communicate with."""
    return _spread.get().replicas


def index() -> jax.Array:
    """Which of all replicas this one is."""
    spread = _spread.get()
    lane = lax.axis_index(AXIS) if spread.lanes > 1 else jnp.zeros((), jnp.int32)
    return lane + lax.axis_index(DEVICES) * spread.lanes if spread.devices > 1 else lane


def local_index() -> jax.Array:
    """Which of the replicas of its process this one is."""
    return index() % (count() // _spread.get().instances) if _spread.get().instances > 1 else index()


def total(value: jax.Array) -> jax.Array:
    """The sum of a value over all replicas."""
    names = tuple(name for name, _ in _spread.get().axis_names)
    return lax.psum(value, names) if names else value


def stacked(value: jax.Array) -> jax.Array:
    """The values of all replicas along a new first axis."""
    value = jnp.asarray(value)
    names = [name for name, _ in _spread.get().axis_names]
    everyone = value
    for name in reversed(names):
        everyone = lax.all_gather(everyone, name)
    return everyone.reshape(count(), *value.shape)


def exchanged(value: jax.Array, split: int, concat: int) -> jax.Array:
    """Cut a value along one axis, give every replica its piece, and join what was received along another axis."""
    spread = _spread.get()
    parts = jnp.moveaxis(value, split, 0)
    parts = parts.reshape(spread.devices, spread.lanes, -1, *parts.shape[1:])
    if spread.devices > 1:
        parts = lax.all_to_all(parts, DEVICES, 0, 0)
    if spread.lanes > 1:
        parts = lax.all_to_all(parts, AXIS, 1, 1)
    pieces = parts.reshape(spread.replicas, *parts.shape[2:])
    return jnp.concatenate([jnp.moveaxis(piece, 0, split) for piece in pieces], axis=concat)


@attrs.frozen
class Layout:
    """How values that every replica has its own of are laid out: on an axis, which a single replica does not have.

    Attributes:
      replicas: how many there are, of one process or of one device.
      shared: others have replicas of the same program; then even a single one has an axis.
    """

    replicas: int
    shared: bool = False

    @property
    def axes(self) -> tuple[int, ...]:
        """The sizes of the replica axis: one, or none at all."""
        return () if self.replicas == 1 and not self.shared else (self.replicas,)

    def shape(self, shape: Sequence[int], *lead: int) -> tuple[int, ...]:
        """The shape of all replicas' values of one shape, after other leading axes (steps)."""
        return (*lead, *self.axes, *shape)

    def copies(self, value: np.ndarray) -> np.ndarray:
        """The same value for every replica."""
        return np.broadcast_to(value, self.shape(value.shape))

    def distinct_seeds(self, seed: np.ndarray, start: int = 0) -> np.ndarray:
        """A different seed for every replica; the first of all keeps the given one: one replica draws as the host.

        Args:
          seed: the host's.
          start: which of all replicas the first one here is.
        """
        lane = np.arange(start, start + self.replicas, dtype=np.uint64).reshape(-1, *([1] * seed.ndim))
        offset = lane * np.uint64(0x9E3779B97F4A7C15)  # odd, so that replicas stay distinct
        return (seed[None].astype(np.uint64) + offset).astype(seed.dtype).reshape(self.shape(seed.shape))

    def seeds(self, values: Sequence[int]) -> np.ndarray:
        """The seeds of one execution, one for every replica, as they are given to it."""
        return np.array([v % 2**64 for v in values], np.uint64).reshape(self.axes)

    def first(self, value: Any) -> Any:
        """The value of the first replica."""
        return value[0] if self.axes else value

    def with_axis(self, value: Any) -> Any:
        """A value that has an axis for several replicas, as one that has it also for a single one of many processes."""
        return value[None] if self.replicas == 1 and self.shared else value

    def without_axis(self, value: Any) -> Any:
        """The inverse of `with_axis`."""
        return value[0] if self.replicas == 1 and self.shared else value

    def of(self, value: Any, step: int, replica: int) -> Any:
        """One replica's value in what was gathered step by step."""
        return value[step, replica] if self.axes else value[step]

    def dealt(self, block: np.ndarray) -> np.ndarray:
        """Elements dealt out to the replicas: the first ones make up the first step."""
        return block.reshape(-1, *self.axes, *block.shape[1:])

    def rows(self, value: np.ndarray) -> np.ndarray:
        """[steps, (replicas,) batch, ...] as [examples, ...], in the order in which the examples were fed."""
        return value.reshape(-1, *value.shape[len(self.axes) + 2 :])
