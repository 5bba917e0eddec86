"""Operands of products as native kernels read them: by strides, from where they are stored."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import attrs
from jax.extend.core import JaxprEqn, Literal, Var

from openipu.compiler.passes.jaxprs import Atom, aval_of


@attrs.frozen
class Operand:
    """An array and how it is read: sizes and steps of the dimensions that the program gives it."""

    atom: Atom
    sizes: tuple[int, ...]
    steps: tuple[int, ...]

    @classmethod
    def of(cls, atom: Atom, makers: Mapping[Var, JaxprEqn]) -> "Operand":
        """The array that an operand is, or was before it was transposed: strides do that for nothing."""
        maker = None if isinstance(atom, Literal) else makers.get(atom)
        if maker is None:
            sizes = aval_of(atom).shape
            return cls(atom, sizes, tuple(math.prod(sizes[d + 1 :]) for d in range(len(sizes))))
        before, order = cls.of(maker.invars[0], makers), maker.params["permutation"]
        return cls(before.atom, tuple(before.sizes[d] for d in order), tuple(before.steps[d] for d in order))

    def merged(self, dims: Sequence[int]) -> tuple[int, int] | None:
        """The size and step of dimensions as one; None if they do not lie side by side."""
        return merged(self.sizes, self.steps, dims)

    def sides(self, batch: Sequence[int], summed: Sequence[int]) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """Sizes and steps of what stays and of what is summed over."""
        stays = self.merged([d for d in range(len(self.sizes)) if d not in batch and d not in summed])
        goes = self.merged(summed)
        return None if stays is None or goes is None else (stays, goes)


def merged(sizes: Sequence[int], steps: Sequence[int], dims: Sequence[int]) -> tuple[int, int] | None:
    """The size and step of some dimensions of an array as one; None if their elements are not one row."""
    dims = [d for d in dims if sizes[d] > 1]
    for outer, inner in pairwise(dims):
        if steps[outer] != steps[inner] * sizes[inner]:
            return None
    return math.prod(sizes[d] for d in dims), steps[dims[-1]] if dims else 1
