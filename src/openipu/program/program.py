"""The user's step, captured: pure functions on arrays, the framework gone."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
import jax
import numpy as np

from openipu.program.limits import Limit

Arrays = Sequence[jax.Array]
Step = Callable[[Arrays, Arrays, Arrays, jax.Array], tuple[Arrays, Arrays, Arrays]]
Update = Callable[[Arrays, Arrays, Arrays], tuple[Arrays, dict[int, jax.Array]]]
Finish = Callable[[Arrays, Arrays], Arrays]


def _sizes(shape: Iterable[Any]) -> tuple[int, ...]:
    return tuple(int(size) for size in shape)


@attrs.frozen
class Slot:
    """One value of the program's state or of its input.

    Attributes:
      name: for messages and reports.
      shape: without any replica axis.
      dtype: of the value on the device.
      seed: the value seeds a random generator, so every replica must start from a different one.
      limit: which numbers it may hold; None for any.
    """

    name: str
    shape: tuple[int, ...] = attrs.field(converter=_sizes)
    dtype: np.dtype = attrs.field(converter=np.dtype)
    seed: bool = False
    limit: Limit | None = None

    @property
    def abstract(self) -> jax.ShapeDtypeStruct:
        """The slot as JAX describes a value it has not seen."""
        return jax.ShapeDtypeStruct(self.shape, self.dtype)


@attrs.frozen
class Program:
    """One step of the user's program as pure functions.

    State is of two kinds. *Shared* state (weights, optimizer state) is equal on all replicas: steps only read it and
    `update` writes it. *Local* state (normalisation statistics, metrics, random seeds) is written by the steps, so
    every replica has its own.

    Attributes:
      name: for messages and reports.
      shared, local, batch: what the functions take, in order.
      step: (shared, local, batch, key) -> (gradients, local, outputs) for one micro-batch.
      update: (shared, local, gradients) -> (shared, {index of local: new value}); None when nothing is trained.
      finish: (shared, local) -> outputs, computed once at the end of an execution (metric results).
      needs_key: whether `step` draws from the key it is given.
      accumulators: the dtype of the accumulator of each gradient; None, for one or for all, is the gradient's own.
      identity: text that programs share only if their functions compute the same; None when there is none. It finds
        an executable that was compiled before without tracing the functions.
      prepare: called before the functions are traced; None when nothing is to be done. Not called for an executable
        that was compiled before.
    """

    name: str
    shared: tuple[Slot, ...]
    local: tuple[Slot, ...]
    batch: tuple[Slot, ...]
    step: Step
    update: Update | None = None
    finish: Finish | None = None
    needs_key: bool = False
    accumulators: tuple[str | None, ...] | None = None
    identity: str | None = None
    prepare: Callable[[], object] | None = None

    @property
    def together(self) -> bool:
        """Whether its executions are made by all instances at once, because they reduce gradients or results."""
        return self.update is not None or self.finish is not None
