"""Custom calls: the operations of openipu itself, and those that TensorFlow leaves to XLA's libraries."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax import lax

from openipu import jax_boundary
from openipu.tensorflow.exceptions import UnsupportedError
from openipu.tensorflow.stablehlo.evaluate import Frame, Held
from openipu.tensorflow.stablehlo.parsed.graph import Op
from openipu.tensorflow.stablehlo.registry import op

# Receives the operands, the configuration and the result types; returns one value for each result.
CustomCall = Callable[[list, dict[str, Any], tuple[jax.ShapeDtypeStruct, ...]], list]
C = TypeVar("C", bound=CustomCall)

# Receives also what calls keep from one to the next, to be changed in place.
HoldingCall = Callable[[list, dict[str, Any], tuple[jax.ShapeDtypeStruct, ...], Held], list]

_CALLS: dict[str, HoldingCall] = {}


def custom_call(name: str) -> Callable[[C], C]:
    """Register `handler(operands, config, result_types) -> list` for the custom call `name`.

    `config` is the call's `backend_config`, parsed as JSON; `{}` where it is empty, and `{"text": …}` where
    it is not JSON, as for the calls of XLA.
    """

    def register(handler: C) -> C:
        holding_call(name)(lambda operands, config, kinds, held: handler(operands, config, kinds))
        return handler

    return register


def holding_call(name: str) -> Callable[[HoldingCall], HoldingCall]:
    """Register a handler that also receives what is held: the entry that `holds` in its configuration names."""

    def register(handler: HoldingCall) -> HoldingCall:
        if name in _CALLS:
            raise ValueError(f"Expected one handler for each custom call. Received a second one for {name!r}.")
        _CALLS[name] = handler
        return handler

    return register


def check_known(op: Op) -> None:
    """Refuse a custom call without a handler."""
    name = op.attr("call_target_name")
    if name not in _CALLS:
        raise UnsupportedError(
            f"Expected custom calls that openipu knows: {', '.join(sorted(_CALLS))}. Received: {name!r}, from "
            f"{op.scope or 'an unnamed operation'!r}. Replace that layer or operation, or compute it on the host."
        )


@op("stablehlo.custom_call")
def _custom_call(op: Op, values: list, frame: Frame) -> list:
    packed = len(op.types) == 1 and isinstance(op.types[0], tuple)
    kinds: Any = op.types[0] if packed else op.types
    call = _CALLS[op.attr("call_target_name")]
    results = list(call(values, _config(op.attr("backend_config")), kinds, frame.held))
    return [tuple(results)] if packed else results


def _config(text: Any) -> dict[str, Any]:
    if isinstance(text, dict):
        return text
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"text": text}


@custom_call("openipu.identity")
def _identity(operands: list, config: dict[str, Any], kinds: tuple[jax.ShapeDtypeStruct, ...]) -> list:
    return list(operands)


@custom_call("Sharding")
def _sharding(operands: list, config: dict[str, Any], kinds: tuple[jax.ShapeDtypeStruct, ...]) -> list:
    # A wish about placement; the plan decides that here.
    return list(operands)


@custom_call("TopK")
def _top_k(operands: list, config: dict[str, Any], kinds: tuple[jax.ShapeDtypeStruct, ...]) -> list:
    values, indices = lax.top_k(operands[0], kinds[0].shape[-1])
    return [values, lax.convert_element_type(indices, kinds[1].dtype)]


@custom_call("Qr")
def _qr(operands: list, config: dict[str, Any], kinds: tuple[jax.ShapeDtypeStruct, ...]) -> list:
    return list(jax_boundary.geqrf(operands[0]))


@custom_call("ProductOfElementaryHouseholderReflectors")
def _householder(operands: list, config: dict[str, Any], kinds: tuple[jax.ShapeDtypeStruct, ...]) -> list:
    a, taus = operands
    rows, columns = a.shape[-2:]
    if columns > rows:
        a = a[..., :rows]
    product = lax.linalg.householder_product(a, taus)
    return [product[..., : kinds[0].shape[-1]]]


@custom_call("Eigh")
def _eigh(operands: list, config: dict[str, Any], kinds: tuple[jax.ShapeDtypeStruct, ...]) -> list:
    # XLA's text says "lower,sort,iterations,tolerance"; LAPACK needs only the first, and sorts always.
    lower = str(config.get("text", "1")).split(",")[0] == "1"
    vectors, values = lax.linalg.eigh(operands[0], lower=lower, symmetrize_input=False)
    return [vectors, values]
