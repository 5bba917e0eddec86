"""The parsed program as plain data: functions of blocks of operations, free of MLIR objects."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax

# What an operation yields: an array type, a tuple of types, or None for a token.
ValueType = jax.ShapeDtypeStruct | tuple | None


@dataclass(eq=False, slots=True)
class Op:
    """One operation: values are numbered, and the numbers are unique in the whole program."""

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    types: tuple[ValueType, ...]
    attrs: dict[str, Any]
    blocks: tuple["Block", ...]
    scope: str
    # Set once the program is checked, so evaluation does not look names up again.
    handler: Callable[..., list] | None = None
    fold: Callable[..., Any] | None = None
    # Random operations of one program are told apart by this number.
    number: int = 0
    needs_key: bool = False
    # What the custom calls in it keep from one to the next, by name.
    holds: frozenset[str] = frozenset()

    def attr(self, name: str, default: object = None) -> Any:
        """The decoded attribute `name`, or `default` where the text leaves it out."""
        return self.attrs.get(name, default)

    @property
    def type(self) -> Any:
        """The type of the only result."""
        return self.types[0]


@dataclass(eq=False, slots=True)
class Block:
    """A straight list of operations with its arguments, what it returns and what it uses from outside."""

    args: tuple[int, ...]
    arg_types: tuple[ValueType, ...]
    ops: tuple[Op, ...]
    returns: tuple[int, ...]
    captures: tuple[int, ...] = ()
    needs_key: bool = False
    holds: frozenset[str] = frozenset()


@dataclass(eq=False, slots=True)
class Program:
    """The functions that `main` reaches, by name, and which outputs are new values of which inputs."""

    functions: dict[str, Block] = field(default_factory=dict)
    # What custom calls hold at the beginning, where their configuration says so: zeros of this type.
    zeros: dict[str, jax.ShapeDtypeStruct] = field(default_factory=dict)
    aliases: dict[int, int] = field(default_factory=dict)

    @property
    def main(self) -> Block:
        """The entry function."""
        return self.functions["main"]
