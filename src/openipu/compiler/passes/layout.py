"""Values stored with their dimensions in another order than the program says."""

import math
from dataclasses import dataclass

from openipu.compiler.passes.jaxprs import Atom, aval_of

Order = tuple[int, ...]


@dataclass(frozen=True)
class Stored:
    """A program value and how it is stored.

    Attributes:
      atom: the variable that holds it.
      order: `order[i]` is the program's dimension that is stored as dimension `i`; the identity is the usual case.
    """

    atom: Atom
    order: Order

    @property
    def permuted(self) -> bool:
        """Whether the order differs from the program's."""
        return self.order != tuple(range(len(self.order)))

    @property
    def position(self) -> Order:
        """Where each of the program's dimensions is stored."""
        return inverse(self.order)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape the program sees."""
        return tuple(aval_of(self.atom).shape[p] for p in self.position)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(aval_of(self.atom).shape)


def identity(rank: int) -> Order:
    """The order of a value stored as the program says."""
    return tuple(range(rank))


def inverse(order: Order) -> Order:
    """Returns the permutation that undoes `order`."""
    result = [0] * len(order)
    for position, dim in enumerate(order):
        result[dim] = position
    return tuple(result)


def drop(order: Order, dims: set[int]) -> Order:
    """Returns the order of what is left when the program's dimensions `dims` are removed."""
    left = [dim for dim in range(len(order)) if dim not in dims]
    rank = {dim: number for number, dim in enumerate(left)}
    return tuple(rank[dim] for dim in order if dim not in dims)


def distances(sizes: tuple[int, ...], order: Order) -> dict[int, int]:
    """How far apart neighbours of an array are in each of the program's dimensions."""
    return {dim: math.prod(sizes[d] for d in order[place + 1 :]) for place, dim in enumerate(order)}
