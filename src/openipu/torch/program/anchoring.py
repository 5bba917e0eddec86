"""Tensors inside a model that the program asked for: which there are, and what comes back of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from openipu.program import Layout
from openipu.torch.capture.flat_module import PREFIX
from openipu.torch.exceptions import Error

LOSS = "loss"
LOSS_SCALE = "finalLossScale"
UPDATED = "UpdatedVar___"
# The host takes no wider types.
SHORT = {np.dtype(np.int64): np.int32, np.dtype(np.float64): np.float32}


def gradient_name(parameter: str) -> str:
    """The name of a parameter's gradient, as the backend calls it."""
    return f"Gradient___{parameter.removeprefix(PREFIX)}"


def updated_name(parameter: str) -> str:
    """The name of a parameter's value after the update, as the backend calls it."""
    return f"{UPDATED}{parameter.removeprefix(PREFIX)}"


def check(anchors: Sequence[str], known: Sequence[str]) -> None:
    """Refuses names that no tensor of the model has."""
    unknown = [name for name in anchors if name not in known]
    if unknown:
        raise Error(
            f"Tensors named {unknown} cannot be anchored: the model has none. Anchor one of those that "
            f"getTensorNames() lists: {sorted(known)}."
        )


def gathered(
    anchors: Sequence[str], current: Mapping[str, Any], batch: Sequence[jax.Array], inside: Mapping[str, jax.Array]
) -> list[jax.Array]:
    """The values of anchored tensors in one step.

    Args:
      anchors: their names.
      current: parameters, buffers and optimizer state.
      batch: the inputs.
      inside: what is only known inside of a step: activations, gradients, the loss.
    """
    if not anchors:
        return []
    known = {name.removeprefix(PREFIX): value for name, value in current.items()}
    known |= {f"input_{index}": value for index, value in enumerate(batch)} | dict(inside)
    # Copies, made by the step: what is only passed through has no replica axis in a pipeline.
    values = [jnp.copy(known[name]) for name in anchors]
    return [value.astype(SHORT.get(value.dtype, value.dtype)) for value in values]


def after_update(before: np.ndarray, last: np.ndarray, accumulation: int, layout: Layout) -> np.ndarray:
    """A weight after each update, from what it was before each step.

    Args:
      before: [steps, replica, ...], without the replica axis for one replica.
      last: the weight at the end, of one replica.
      accumulation: steps between two updates.
      layout: how the replicas' values are laid out.

    Returns:
      For every step the weight after the update it belongs to, in the shape of `before`.
    """
    end = layout.copies(last)
    after = np.concatenate([before[accumulation::accumulation], end[None]])
    return np.repeat(after, accumulation, axis=0)[: len(before)]
