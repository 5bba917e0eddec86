"""Evaluation of a parsed program, operation by operation, on arrays or tracers."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from openipu.tensorflow.stablehlo.parsed.graph import Block, Op, Program, ValueType

OnOp = Callable[[str, str, list], None]
Within = Callable[[str], contextlib.AbstractContextManager]
Held = dict[str, Any]


class Frame:
    """The values of one block under evaluation, and what its operations may ask for."""

    __slots__ = ("env", "held", "key", "on_op", "program", "within")

    def __init__(
        self,
        program: Program,
        key: jax.Array | None,
        on_op: OnOp | None,
        within: Within | None = None,
        held: Held | None = None,
    ) -> None:
        self.program = program
        self.key = key
        self.on_op = on_op
        self.within = within
        # What custom calls keep from one to the next; loops carry it, and branches return it.
        self.held: Held = {} if held is None else held
        self.env: dict[int, Any] = {}

    def run(self, block: Block, args: Sequence[Any]) -> list:
        """Evaluate a block whose captured values this frame already holds."""
        env = self.env
        env.update(zip(block.args, args, strict=True))
        for op in block.ops:
            values = [env[i] for i in op.operands]
            results = fold(op, values)
            if results is None:
                assert op.handler is not None
                with self.within(op.scope) if self.within is not None else contextlib.nullcontext():
                    results = op.handler(op, values, self)
                check(op, results)
            env.update(zip(op.results, results, strict=True))
            if self.on_op is not None:
                self.on_op(op.scope, op.name, list(results))
        return [env[i] for i in block.returns]

    def call(self, name: str, args: Sequence[Any], number: int) -> list:
        """Evaluate a function in place; two calls of one function draw different random numbers."""
        block = self.program.functions[name]
        key = self.fold_key(number) if block.needs_key else None
        return Frame(self.program, key, self.on_op, self.within, self.held).run(block, args)

    def region(self, block: Block) -> Callable[..., list]:
        """A block as a function of its arguments (and of a random key, if it draws numbers).

        Its operations are not reported to `on_op`: their values live in an inner trace. What its custom calls hold
        is given to it, and left in what was given.
        """
        captured = {i: self.env[i] for i in block.captures}

        def evaluate(*args: Any, key: jax.Array | None = None, held: Held | None = None) -> list:
            frame = Frame(self.program, self.key if key is None else key, None, None, held)
            frame.env.update(captured)
            return frame.run(block, args)

        return evaluate

    def fold_key(self, number: int | jax.Array) -> jax.Array:
        """The random key of this frame, made particular to `number`."""
        assert self.key is not None
        return jax.random.fold_in(self.key, number)


def fold(op: Op, values: list) -> list | None:
    """The results of a small operation on constants alone, computed now; None where that does not apply.

    TensorFlow writes shape and random-key arithmetic on constants at length. Folding keeps it out of the
    program, and makes loop bounds and indices that depend on it known.
    """
    if op.fold is None or not all(type(value) is np.ndarray and value.size <= 16 for value in values):
        return None
    if op.type.size > 16 or len(op.type.shape) > 1:
        return None
    with np.errstate(all="ignore"):
        result = op.fold(op, *values)
    return None if result is None else [np.asarray(result, op.type.dtype).reshape(op.type.shape)]


def check(op: Op, results: Sequence[Any]) -> None:
    """Refuse results whose types are not those of the text, which would be a mistake in the lowering."""
    for kind, result in zip(op.types, results, strict=True):
        if isinstance(kind, jax.ShapeDtypeStruct) and not same_type(kind, result):
            received = f"{jax.typeof(result).str_short()}"
            raise TypeError(f"{op.name} from {op.scope!r}: expected {_short(kind)}. Received: {received}.")


def same_type(kind: jax.ShapeDtypeStruct, value: Any) -> bool:
    """Whether an array has exactly this shape and dtype."""
    return value.shape == kind.shape and value.dtype == kind.dtype


def _short(kind: ValueType) -> str:
    assert isinstance(kind, jax.ShapeDtypeStruct)
    return f"{kind.dtype.name}[{','.join(map(str, kind.shape))}]"
