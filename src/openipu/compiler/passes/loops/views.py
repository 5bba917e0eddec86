"""Arrays of a loop as operations read them: where they begin, and how far apart their numbers are."""

import math
from collections.abc import Sequence

import attrs
import numpy as np
from jax.extend.core import Literal, Var

from openipu.compiler.passes.jaxprs import aval_of
from openipu.compiler.passes.operands import merged

Sizes = tuple[int, ...]


class NotInLoops(Exception):
    """A step has something that loops of a team do not compute; the text says what."""


@attrs.frozen
class Constant:
    """One number that is known."""

    value: bytes
    dtype: np.dtype


@attrs.frozen
class View:
    """A value, or part of it, read in some order.

    Attributes:
      base: the variable whose numbers they are, or one constant.
      offset: the first one's.
      sizes, steps: of all dimensions.
      dtype: of the numbers.
    """

    base: Var | Constant
    offset: int
    sizes: Sizes
    steps: Sizes
    dtype: np.dtype

    @classmethod
    def whole(cls, atom: Var | Literal) -> "View":
        """All of a value, as it is stored."""
        sizes, dtype = tuple(aval_of(atom).shape), np.dtype(aval_of(atom).dtype)
        if isinstance(atom, Literal):
            number = np.asarray(atom.val, dtype)
            if number.ndim:
                raise NotInLoops("a literal that is an array")
            return cls(Constant(number.tobytes(), dtype), 0, (), (), dtype)
        return cls(atom, 0, sizes, in_order(sizes), dtype)

    @property
    def count(self) -> int:
        """How many numbers there are."""
        return math.prod(self.sizes)

    @property
    def is_dense(self) -> bool:
        """Whether the numbers lie one after another."""
        return all(
            size == 1 or step == dense
            for size, step, dense in zip(self.sizes, self.steps, in_order(self.sizes), strict=True)
        )

    def is_all_of(self, var: Var) -> bool:
        """Whether these are the numbers of a variable in their order, whatever dimensions they are given."""
        return self.base is var and self.offset == 0 and self.is_dense and self.count == math.prod(aval_of(var).shape)

    def broadcast(self, sizes: Sizes, dims: Sequence[int]) -> "View":
        """As `lax.broadcast_in_dim`."""
        steps = [0] * len(sizes)
        for size, step, dim in zip(self.sizes, self.steps, dims, strict=True):
            steps[dim] = step if size == sizes[dim] else 0
        return attrs.evolve(self, sizes=sizes, steps=tuple(steps))

    def turned(self, order: Sequence[int]) -> "View":
        """As `lax.transpose`."""
        return attrs.evolve(self, sizes=tuple(self.sizes[d] for d in order), steps=tuple(self.steps[d] for d in order))

    def cut(self, starts: Sizes, limits: Sizes, strides: Sizes | None) -> "View":
        """As `lax.slice`."""
        strides = strides or (1,) * len(starts)
        sizes = tuple(-(-(e - b) // s) for b, e, s in zip(starts, limits, strides, strict=True))
        offset = self.offset + sum(b * step for b, step in zip(starts, self.steps, strict=True))
        steps = tuple(s * step for s, step in zip(strides, self.steps, strict=True))
        return attrs.evolve(self, offset=offset, sizes=sizes, steps=steps)

    def reshaped(self, sizes: Sizes) -> "View | None":
        """As `lax.reshape`; None if the numbers would have to move."""
        if self.is_dense:
            return attrs.evolve(self, sizes=sizes, steps=in_order(sizes))
        # Dimensions of size 1 come and go.
        real = [(size, step) for size, step in zip(self.sizes, self.steps, strict=True) if size > 1]
        if [size for size, _ in real] != [size for size in sizes if size > 1]:
            return None
        left = iter(real)
        return attrs.evolve(self, sizes=sizes, steps=tuple(next(left)[1] if size > 1 else 0 for size in sizes))

    def merged(self, dims: Sequence[int]) -> tuple[int, int] | None:
        """The size and step of dimensions as one; None if they are not a row of numbers."""
        return merged(self.sizes, self.steps, dims)


def in_order(sizes: Sizes) -> Sizes:
    """The steps of an array that is stored in the order of its dimensions."""
    return tuple(math.prod(sizes[d + 1 :]) for d in range(len(sizes)))


def common(views: Sequence[View], keep_last: bool) -> tuple[Sizes, list[Sizes]]:
    """Sizes of as few dimensions as all views allow, and the views' steps along them.

    Args:
      views: of equal sizes.
      keep_last: whether the last dimension stays alone.
    """
    sizes = views[0].sizes
    made: list[list[int]] = []
    for dim, size in enumerate(sizes):
        alone = keep_last and dim == len(sizes) - 1
        if size == 1 and not alone:
            continue
        fits = made and all(v.steps[made[-1][-1]] == v.steps[dim] * size for v in views)
        if fits and not alone:
            made[-1].append(dim)
        else:
            made.append([dim])
    if not made:
        return (1,), [(0,) for _ in views]
    merged_sizes = tuple(math.prod(sizes[d] for d in dims) for dims in made)
    # A single number in a row may be read with any step.
    return merged_sizes, [tuple(v.steps[dims[-1]] for dims in made) for v in views]
