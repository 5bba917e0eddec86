"""Decoding of MLIR types, locations and attributes into plain Python values."""

import re
from typing import Any

import jax
import ml_dtypes
import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from openipu.tensorflow.exceptions import UnsupportedError
from openipu.tensorflow.stablehlo.parsed.graph import ValueType

_ELEMENTS: dict[str, Any] = {
    "i1": np.bool_,
    "index": np.int64,
    "i2": ml_dtypes.int2,
    "i4": ml_dtypes.int4,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "ui2": ml_dtypes.uint2,
    "ui4": ml_dtypes.uint4,
    "ui8": np.uint8,
    "ui16": np.uint16,
    "ui32": np.uint32,
    "ui64": np.uint64,
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "complex<f32>": np.complex64,
    "complex<f64>": np.complex128,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "f8E4M3B11FNUZ": ml_dtypes.float8_e4m3b11fnuz,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}
_DTYPES = {name: np.dtype(element) for name, element in _ELEMENTS.items()}

_DIMENSION_NUMBERS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (
        stablehlo.ConvDimensionNumbers,
        (
            "input_batch_dimension",
            "input_feature_dimension",
            "input_spatial_dimensions",
            "kernel_input_feature_dimension",
            "kernel_output_feature_dimension",
            "kernel_spatial_dimensions",
            "output_batch_dimension",
            "output_feature_dimension",
            "output_spatial_dimensions",
        ),
    ),
    (
        stablehlo.DotDimensionNumbers,
        (
            "lhs_batching_dimensions",
            "rhs_batching_dimensions",
            "lhs_contracting_dimensions",
            "rhs_contracting_dimensions",
        ),
    ),
    (
        stablehlo.GatherDimensionNumbers,
        (
            "offset_dims",
            "collapsed_slice_dims",
            "operand_batching_dims",
            "start_indices_batching_dims",
            "start_index_map",
            "index_vector_dim",
        ),
    ),
    (
        stablehlo.ScatterDimensionNumbers,
        (
            "update_window_dims",
            "inserted_window_dims",
            "input_batching_dims",
            "scatter_indices_batching_dims",
            "scattered_dims_to_operand_dims",
            "index_vector_dim",
        ),
    ),
)

_ENUM = re.compile(r"#(?:stablehlo|mhlo|chlo)<[\w ]*?(\w+)>$")
_ELEMENT = re.compile(r"\(([^()]*),([^()]*)\)|([^\s,\[\]]+)")


def decode_type(kind: ir.Type) -> ValueType:
    """An array type as a shape and dtype, a tuple type as a tuple, a token as None."""
    if isinstance(kind, ir.RankedTensorType):
        element = str(kind.element_type)
        if element not in _DTYPES:
            raise UnsupportedError(
                f"Expected a plain number type. Received: {kind}. Quantized types are not supported."
            )
        if not kind.has_static_shape or kind.encoding is not None:
            raise UnsupportedError(
                f"Expected static shapes: an IPU program has no shape that depends on data. Received: {kind}. "
                "Use an operation with a fixed output shape (for tf.boolean_mask or tf.where(condition): multiply "
                "by the mask, or tf.where(condition, x, y))."
            )
        return jax.ShapeDtypeStruct(tuple(kind.shape), _DTYPES[element])
    if isinstance(kind, ir.TupleType):
        return tuple(decode_type(kind.get_type(i)) for i in range(kind.num_types))
    if "token" in str(kind):
        return None
    raise UnsupportedError(f"Expected array, tuple or token types. Received: {kind}.")


def decode_scope(location: Any) -> str:
    """The TensorFlow name of an operation, or "" where the location has none."""
    if isinstance(location, ir.NameLoc):
        return location.name_str
    if isinstance(location, ir.FusedLoc):
        for inner in location.locations:
            if scope := decode_scope(inner):
                return scope
    if isinstance(location, ir.CallSiteLoc):
        return decode_scope(location.callee)
    return ""


def decode(attribute: Any) -> Any:
    """An attribute as numbers, strings, tuples, dictionaries or NumPy arrays; anything else as its text."""
    if isinstance(attribute, (ir.BoolAttr, ir.IntegerAttr, ir.FloatAttr, ir.StringAttr, ir.FlatSymbolRefAttr)):
        return attribute.value
    if isinstance(attribute, (ir.DenseI64ArrayAttr, ir.DenseI32ArrayAttr, ir.DenseBoolArrayAttr)):
        return tuple(attribute)
    if isinstance(attribute, ir.ArrayAttr):
        return tuple(decode(inner) for inner in attribute)
    if isinstance(attribute, ir.DictAttr):
        return {entry.name: decode(entry.attr) for entry in attribute}
    if isinstance(attribute, (ir.DenseIntElementsAttr, ir.DenseFPElementsAttr)):
        return decode_elements(attribute)
    for kind, fields in _DIMENSION_NUMBERS:
        if kind.isinstance(attribute):
            numbers = kind(attribute)
            values = {name: getattr(numbers, name) for name in fields}
            return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    text = str(attribute)
    enum = _ENUM.match(text)
    return enum.group(1) if enum else text


def decode_elements(attribute: Any) -> np.ndarray:
    """A dense constant as an array; the 0-d broadcast of one value has stride zero and costs no memory."""
    if isinstance(attribute, ir.DenseResourceElementsAttr):
        raise UnsupportedError("Expected constants in the text. Received: a constant kept outside of it.")
    kind = decode_type(attribute.type)
    assert isinstance(kind, jax.ShapeDtypeStruct)
    if attribute.is_splat:
        try:
            value = np.array(decode(attribute.get_splat_value()), kind.dtype)
        except (TypeError, ValueError):
            value = _elements_from_text(str(attribute), jax.ShapeDtypeStruct((), kind.dtype))
        return np.broadcast_to(value, kind.shape)
    try:
        return np.array(attribute).astype(kind.dtype, copy=False).reshape(kind.shape)
    except TypeError:
        # The bindings give no buffer for element types that NumPy lacks.
        return _elements_from_text(str(attribute), kind)


def decode_constant(operation: ir.Operation) -> np.ndarray:
    """The value of a constant operation, for every element type."""
    try:
        attribute = operation.attributes["value"]
    except TypeError:
        # The bindings have no class for constants of complex numbers; their text is complete.
        kind = decode_type(operation.results[0].type)
        assert isinstance(kind, jax.ShapeDtypeStruct)
        return _elements_from_text(str(operation.get_asm(large_elements_limit=None)), kind)
    return decode_elements(attribute)


def _elements_from_text(text: str, kind: jax.ShapeDtypeStruct) -> np.ndarray:
    body = text[text.index("dense<") + len("dense<") : text.rindex("> : tensor")]
    if body.startswith('"0x'):
        values = np.frombuffer(bytes.fromhex(body[3:-1]), kind.dtype)
    else:
        part = np.zeros((), kind.dtype).real.dtype
        found = [
            complex(_number(real, part), _number(imaginary, part)) if real else _number(plain, part)
            for real, imaginary, plain in _ELEMENT.findall(body)
        ]
        values = np.array(found).astype(kind.dtype)
    return np.broadcast_to(values.reshape(()), kind.shape) if values.size == 1 else values.reshape(kind.shape)


def _number(text: str, dtype: np.dtype) -> Any:
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    if not text.startswith("0x"):
        return float(text) if "." in text or "e" in text else int(text)
    # Infinities and NaNs are written as their bits.
    bits = int(text, 16).to_bytes(dtype.itemsize, "little")
    return np.frombuffer(bits, dtype)[0].astype(np.float64)
