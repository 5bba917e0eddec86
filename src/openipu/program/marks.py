"""Marks on traced operations that say which part of a pipeline they belong to."""

import contextlib
import re

import jax

_PREFIX = "openipu_part_"
_PATTERN = re.compile(_PREFIX + r"(\d+)")


def part(index: int) -> contextlib.AbstractContextManager:
    """Mark what is traced inside: stage i forward is part i of 2N, stage i backward part 2N - 1 - i."""
    return jax.named_scope(f"{_PREFIX}{index}")


def part_of(equation: jax.extend.core.JaxprEqn) -> int | None:
    """The part an equation was marked with; the innermost mark counts."""
    found = _PATTERN.findall(str(equation.source_info.name_stack))
    return int(found[-1]) if found else None
