"""Marks on traced operations that say which part of a pipeline they belong to."""

import contextlib
import re

import jax
from jax.extend import core

_PREFIX = "openipu_part_"
_PATTERN = re.compile(_PREFIX + r"(\d+)")


def part(index: int) -> contextlib.AbstractContextManager:
    """Mark what is traced inside: stage i forward is part i of 2N, stage i backward part 2N - 1 - i."""
    return jax.named_scope(f"{_PREFIX}{index}")


def part_of(equation: core.JaxprEqn, parts: int) -> int | None:
    """The part of `parts` an equation was marked with; the innermost mark counts.

    What JAX derives as the backward pass of a marked operation carries the mark of its forward pass within
    `transpose(...)`, and belongs to the same stage's backward part.
    """
    stack = str(equation.source_info.name_stack)
    found = _PATTERN.findall(stack)
    if not found:
        return None
    return parts - 1 - int(found[-1]) if "transpose(" in stack else int(found[-1])
