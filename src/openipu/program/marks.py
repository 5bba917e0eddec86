"""Marks on traced operations: which part of a pipeline they belong to, and which layer of the user's model."""

import contextlib
import contextvars
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager

import jax
from jax.extend import core

from openipu.contexts import during
from openipu.jax_boundary import name_stack

_PREFIX = "openipu_part_"
_PATTERN = re.compile(_PREFIX + r"(\d+)")
_LAYER = re.compile(r"openipu_layer<([^>]*)>")
_BACKWARD = "openipu_backward"
_KEEP = "openipu_keep"

_naming: contextvars.ContextVar[bool] = contextvars.ContextVar("openipu_naming", default=False)


def part(index: int) -> contextlib.AbstractContextManager:
    """Mark what is traced inside: stage i forward is part i of 2N, stage i backward part 2N - 1 - i."""
    return jax.named_scope(f"{_PREFIX}{index}")


def scope_of_stage(stage: int, stages: int, stack: str) -> str:
    """The scope that marks an operation, traced with this name stack already, with a stage of a training program."""
    # What JAX derived is counted from the other end anyway.
    explicit = is_backward(stack) and "transpose(" not in stack
    return f"{_PREFIX}{2 * stages - 1 - stage if explicit else stage}"


def part_of(equation: core.JaxprEqn, parts: int) -> int | None:
    """The part of `parts` an equation was marked with; the innermost mark counts.

    What JAX derives as the backward pass of a marked operation carries the mark of its forward pass within
    `transpose(...)`, and belongs to the same stage's backward part.
    """
    stack = name_stack(equation)
    found = _PATTERN.findall(stack)
    if not found:
        return None
    return parts - 1 - int(found[-1]) if "transpose(" in stack else int(found[-1])


def naming() -> AbstractContextManager[bool]:
    """Trace with the names of layers: front ends mark operations with `layer` inside only, as nobody else reads it."""
    return during(_naming, True)


def names_wanted() -> bool:
    """Whether operations are to be marked with their layers."""
    return _naming.get()


@contextlib.contextmanager
def layer(path: str, backward: bool = False) -> Iterator[None]:
    """Mark what is traced inside as a layer's.

    Args:
      path: of the layer in the user's model, parts joined by "/".
      backward: it belongs to the backward pass. What JAX derives is known to without it.
    """
    with contextlib.ExitStack() as stack:
        if backward:
            stack.enter_context(jax.named_scope(_BACKWARD))
        # Scopes are joined by slashes, so a path has others.
        stack.enter_context(jax.named_scope(f"openipu_layer<{path.replace('/', '|')}>"))
        yield


def layer_of(stack: str) -> str | None:
    """The layer that a name stack was marked with; the innermost mark counts."""
    found = _LAYER.findall(stack)
    return found[-1].replace("|", "/") if found else None


def is_backward(stack: str) -> bool:
    """Whether a name stack is that of an operation of a backward pass."""
    return "transpose(" in stack or _BACKWARD in stack


def kept() -> contextlib.AbstractContextManager:
    """Mark what is traced inside as a checkpoint: its values are kept, where others are recomputed."""
    return jax.named_scope(_KEEP)


def is_kept(stack: str) -> bool:
    """Whether a name stack is that of a checkpoint."""
    return _KEEP in stack
