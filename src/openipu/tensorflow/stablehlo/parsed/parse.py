"""Parsing of StableHLO text with the MLIR bindings that come with JAX."""

import functools
import json
import math
import re
from typing import Any

import jax
import numpy as np
from jax.extend.mlir import ir

from openipu.tensorflow.exceptions import UnsupportedError
from openipu.tensorflow.stablehlo.parsed.attributes import decode, decode_constant, decode_scope, decode_type
from openipu.tensorflow.stablehlo.parsed.graph import Block, Op, Program, ValueType

# Written by TensorFlow for XLA's layout assignment and debugging; they do not change what is computed.
_IGNORED = frozenset(
    {
        "mhlo.frontend_attributes",
        "mhlo.sharding",
        "operand_layouts",
        "result_layout",
        "result_layouts",
        "source_layout",
        "xla_shape",
    }
)

_BOOLEANS = re.compile(r'dense<"0x([0-9A-F]*)"> : tensor<([0-9x]*)xi1>')

_UNKNOWN = re.compile(r'"([^"]*)"(?:, "[^"]*")?[:\d]*\]?: unregistered operation \'([^\']+)\'')


@functools.cache
def _context() -> ir.Context:
    # A context with the dialects registered; making one from parts is not public API.
    module: Any = jax.jit(lambda x: x).lower(0.0).compiler_ir("stablehlo")
    context = module.context
    context.allow_unregistered_dialects = True
    return context


def parse(text: str) -> Program:
    """Parse a StableHLO module into plain data; only what `main` reaches is kept."""
    try:
        module = ir.Module.parse(_BOOLEANS.sub(_unpack, text), context=_context())
    except ir.MLIRError as error:
        if unknown := _UNKNOWN.search(str(error)):
            scope, name = unknown.groups()
            if "#stablehlo.bounds" in str(error):
                raise UnsupportedError(
                    f"Expected static shapes: an IPU program has no shape that depends on data. Received: {name}, from "
                    f"{scope!r}. Use a mask of fixed size (tf.where) there, or compute it in the tf.data pipeline."
                ) from None
            raise UnsupportedError(
                f"Expected operations that openipu can lower. Received: {name}, from {scope!r}: the parser does not "
                "know this operation. Replace that layer or operation, or compute it on the host."
            ) from None
        raise ValueError(f"Expected a StableHLO module as text. The parser said: {error}") from None
    functions = {str(f.attributes["sym_name"]).strip('"'): f for f in module.body.operations}
    if "main" not in functions:
        raise ValueError(f"Expected a module with a function @main. Received functions: {sorted(functions)}.")
    return _Parser(functions).program(_aliases(module))


def _unpack(match: re.Match[str]) -> str:
    """Large boolean constants as bytes: TensorFlow's printer packs eight into one, JAX's parser does not."""
    data = np.frombuffer(bytes.fromhex(match.group(1)), np.uint8)
    size = math.prod(int(length) for length in match.group(2).split("x"))
    if data.size == size:
        return match.group(0)
    unpacked = np.unpackbits(data, bitorder="little")[:size].tobytes().hex().upper()
    return f'dense<"0x{unpacked}"> : tensor<{match.group(2)}xi1>'


def _aliases(module: ir.Module) -> dict[int, int]:
    attributes = module.operation.attributes
    if "mhlo.input_output_alias" not in attributes:
        return {}
    # An empty output index means that the only output is meant.
    return {
        entry["output_index"][0] if entry["output_index"] else 0: entry["alias"]["parameter_number"]
        for entry in decode(attributes["mhlo.input_output_alias"])
    }


class _Parser:
    """Numbers the values and operations of one module while walking it."""

    def __init__(self, functions: dict[str, Any]) -> None:
        self._sources = functions
        self._values: dict[ir.Value, int] = {}
        self._types: dict[ir.Type, ValueType] = {}
        self._program = Program()
        self._ops = 0

    def program(self, aliases: dict[int, int]) -> Program:
        self._function("main")
        self._program.aliases = aliases
        return self._program

    def _function(self, name: str) -> Block:
        if name not in self._program.functions:
            source = self._sources[name]
            self._program.functions[name] = self._block(source.regions[0].blocks[0], "")
        return self._program.functions[name]

    def _value(self, value: ir.Value) -> int:
        return self._values.setdefault(value, len(self._values))

    def _type(self, kind: ir.Type) -> ValueType:
        if kind not in self._types:
            self._types[kind] = decode_type(kind)
        return self._types[kind]

    def _block(self, block: ir.Block, scope: str) -> Block:
        args = tuple(self._value(argument) for argument in block.arguments)
        arg_types = tuple(self._type(argument.type) for argument in block.arguments)
        defined = set(args)
        # A dictionary for its order: what comes first is captured first.
        captures: dict[int, None] = {}
        ops: list[Op] = []
        returns: tuple[int, ...] = ()
        for view in block.operations:
            operation = view.operation
            operands = tuple(self._value(operand) for operand in operation.operands)
            captures.update((i, None) for i in operands if i not in defined)
            if operation.name in ("func.return", "stablehlo.return", "mhlo.return"):
                returns = operands
                break
            op = self._op(operation, operands, scope)
            for inner in op.blocks:
                captures.update((i, None) for i in inner.captures if i not in defined)
            defined.update(op.results)
            ops.append(op)
        needs_key = any(op.needs_key for op in ops)
        holds = frozenset().union(*(op.holds for op in ops))
        return Block(args, arg_types, tuple(ops), returns, tuple(captures), needs_key, holds)

    def _op(self, operation: ir.Operation, operands: tuple[int, ...], scope: str) -> Op:
        scope = decode_scope(operation.location) or scope
        self._ops += 1
        number = self._ops
        name = operation.name
        try:
            types = tuple(self._type(result.type) for result in operation.results)
            attrs: dict[str, Any]
            if name == "stablehlo.constant":
                attrs = {"value": decode_constant(operation)}
            else:
                attrs = {n: decode(operation.attributes[n]) for n in _names(operation) if n not in _IGNORED}
        except UnsupportedError as error:
            raise UnsupportedError(f"{error} Operation: {name}, from {scope or 'an unnamed operation'!r}.") from None
        results = tuple(self._value(result) for result in operation.results)
        blocks = tuple(self._block(region.blocks[0], scope) for region in operation.regions if len(region.blocks))
        needs_key = name == "stablehlo.rng" or any(block.needs_key for block in blocks)
        config = _config_of(attrs)
        if "zeros" in config:
            shape, dtype = config["zeros"]
            self._program.zeros[config["holds"]] = jax.ShapeDtypeStruct(tuple(shape), np.dtype(jax.numpy.dtype(dtype)))
        own = frozenset([config["holds"]] if "holds" in config else [])
        holds = own.union(*(block.holds for block in blocks))
        callee = attrs.get("callee") or attrs.get("decomposition")
        if callee is not None:
            needs_key |= self._function(callee).needs_key
            holds |= self._function(callee).holds
        return Op(name, operands, results, types, attrs, blocks, scope, number=number, needs_key=needs_key, holds=holds)


def _config_of(attrs: dict[str, Any]) -> dict[str, Any]:
    """The configuration of one of openipu's custom calls; empty for all else."""
    config = attrs.get("backend_config")
    config = json.loads(config) if isinstance(config, str) and config.startswith("{") else config
    return config if isinstance(config, dict) else {}


def _names(operation: ir.Operation) -> list[str]:
    return [name if isinstance(name, str) else name.name for name in operation.attributes]
