"""The public face of the lowering: StableHLO text in, a function on JAX arrays out."""

from typing import Any

import jax
import numpy as np

from openipu.jax_boundary import setting
from openipu.tensorflow.exceptions import UnsupportedError
from openipu.tensorflow.stablehlo import (  # noqa: F401  (imported for the operations they register)
    chlo,
    contraction,
    control,
    custom_calls,
    dynamic,
    elementwise,
    indexing,
    linalg,
    normalization,
    random,
    reduction,
    shape,
    sorting,
    window,
)
from openipu.tensorflow.stablehlo.blocks.occurrences import occurrences, places
from openipu.tensorflow.stablehlo.evaluate import Frame, Held, OnOp, Within, same_type
from openipu.tensorflow.stablehlo.folding import FOLDS
from openipu.tensorflow.stablehlo.parsed.graph import Block, Op, Program
from openipu.tensorflow.stablehlo.parsed.parse import parse
from openipu.tensorflow.stablehlo.registry import find, reason


class Lowered:
    """A captured TensorFlow function that runs on JAX arrays or tracers.

    Attributes:
        inputs: types of the inputs: the function's arguments, then the variables it uses.
        outputs: types of the outputs.
        aliases: for outputs that are new values of variables, output index to input index.
        needs_key: whether a call needs a random key, because the function uses stateful random operations.
        scopes: the TensorFlow names of the operations of the entry function, in order.
    """

    def __init__(self, program: Program) -> None:
        main = program.main
        types = dict(zip(main.args, main.arg_types, strict=True))
        for op in main.ops:
            types.update(zip(op.results, op.types, strict=True))
        self._program = program
        self.inputs: tuple[jax.ShapeDtypeStruct, ...] = tuple(_array(kind) for kind in main.arg_types)
        self.outputs: tuple[jax.ShapeDtypeStruct, ...] = tuple(_array(types[i]) for i in main.returns)
        self.aliases: dict[int, int] = dict(program.aliases)
        self.needs_key: bool = main.needs_key
        self._wide = any(_has_wide_types(block) for block in program.functions.values())

    @property
    def scopes(self) -> tuple[str, ...]:
        """The TensorFlow names of the operations of the entry function, in order."""
        return tuple(op.scope for op in self._program.main.ops)

    def __call__(
        self,
        *args: Any,
        key: jax.Array | None = None,
        on_op: OnOp | None = None,
        within: Within | None = None,
        held: Held | None = None,
    ) -> list:
        """Evaluate on arrays or tracers, under `jax.enable_x64(True)` if 64-bit types occur.

        Args:
            *args: one array for each of `inputs`, with exactly its shape and dtype.
            key: a key of `jax.random.key`, or the raw uint32[2] data of a threefry key. Only stateful random
                operations draw from it, each its own numbers, anew in each iteration of a loop.
            on_op: called as `on_op(scope, operation name, results)` after each operation outside of loops and
                branches; those are reported as one operation.
            within: gives, for the TensorFlow name of each operation, the context it is evaluated in.
            held: what custom calls keep from one to the next, by name; changed in place.

        Returns:
            One array for each of `outputs`.
        """
        if self._wide and not setting("jax_enable_x64"):
            raise ValueError(
                "Expected 64-bit types to be enabled, because the captured function uses them. "
                "Call it inside `with jax.enable_x64(True):`."
            )
        zeros = {name: jax.numpy.zeros(kind.shape, kind.dtype) for name, kind in self._program.zeros.items()}
        held = {} if held is None else held
        held.update(zeros)
        frame = Frame(self._program, self._key(key), on_op, within, held)
        results = frame.run(self._program.main, self._arguments(args))
        # Constants stay NumPy arrays while folding; what leaves is an array of JAX.
        return [jax.numpy.asarray(result) for result in results]

    def occurrences(self, call: str, key: str) -> dict[Any, int | None]:
        """How often one execution carries out a custom call, by the entry `key` of its configuration."""
        return occurrences(self._program, call, key)

    def places(self, call: str, key: str) -> dict[Any, int]:
        """In how many places a custom call stands, by the entry `key` of its configuration."""
        return places(self._program, call, key)

    def _key(self, key: jax.Array | None) -> jax.Array | None:
        if not self.needs_key:
            return None
        if key is None:
            raise ValueError(
                "Expected a random key, because the captured function uses stateful random operations. "
                "Received: key=None. Pass key=jax.random.key(seed)."
            )
        if jax.numpy.issubdtype(key.dtype, jax.dtypes.prng_key):
            return key
        return jax.random.wrap_key_data(key, impl="threefry2x32")

    def _arguments(self, args: tuple[Any, ...]) -> list:
        if len(args) != len(self.inputs):
            raise ValueError(f"Expected {len(self.inputs)} arguments. Received: {len(args)}.")
        arrays = [arg if isinstance(arg, jax.Array) else np.asarray(arg) for arg in args]
        for index, (kind, array) in enumerate(zip(self.inputs, arrays, strict=True)):
            if not same_type(kind, array):
                raise TypeError(
                    f"Expected argument {index} with shape {kind.shape} and dtype {kind.dtype}. "
                    f"Received: shape {array.shape} and dtype {array.dtype}."
                )
        # A NumPy argument is data, not a constant of the program: it must not take part in folding.
        return [array if isinstance(array, jax.Array) else jax.numpy.asarray(array) for array in arrays]


def lower(text: str) -> Lowered:
    """Parse StableHLO text and check that every operation is known.

    Raises:
        UnsupportedError: an operation has no meaning here; the message names it and where it came from.
        ValueError: the text is not a StableHLO module with a function `main`.
    """
    program = parse(text)
    for block in program.functions.values():
        _resolve(block)
    return Lowered(program)


def _resolve(block: Block) -> None:
    for op in block.ops:
        op.handler = find(op.name)
        if op.handler is None:
            raise UnsupportedError(_refusal(op))
        if op.name == "stablehlo.custom_call":
            custom_calls.check_known(op)
        op.fold = FOLDS.get(op.name)
        for inner in op.blocks:
            _resolve(inner)


def _refusal(op: Op) -> str:
    return (
        f"Expected operations that openipu can lower. Received: {op.name}, from "
        f"{op.scope or 'an unnamed operation'!r}: {reason(op.name)}. "
        "Replace that layer or operation, or compute it on the host."
    )


def _array(kind: object) -> jax.ShapeDtypeStruct:
    if not isinstance(kind, jax.ShapeDtypeStruct):
        raise UnsupportedError(f"Expected arrays as inputs and outputs of the function. Received: {kind}.")
    return kind


def _has_wide_types(block: Block) -> bool:
    kinds = [*block.arg_types, *(kind for op in block.ops for kind in op.types)]
    wide = (np.dtype(name) for name in ("int64", "uint64", "float64", "complex128"))
    names = set(wide)
    return any(isinstance(kind, jax.ShapeDtypeStruct) and kind.dtype in names for kind in kinds) or any(
        _has_wide_types(inner) for op in block.ops for inner in op.blocks
    )
