"""What openipu uses of JAX beyond its public API (`jax.extend` is public): here, and nowhere else."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax._src import callback as _callback
from jax._src import distributed as _distributed
from jax._src import source_info_util
from jax._src import xla_bridge as _xla_bridge
from jax._src.core import Var as _Var
from jax._src.lax.linalg import geqrf
from jax._src.lax.windowed_reductions import _select_and_scatter as select_and_scatter
from jax.core import AbstractValue, ShapedArray
from jax.extend.core import JaxprEqn, Primitive, Var
from jax.interpreters import batching, mlir, partial_eval
from jax.sharding import SingleDeviceSharding
from jaxlib._jax import batched_device_put

from openipu.frameworks import Private

__all__ = [
    "TABLE",
    "CoordinationError",
    "backends_initialised",
    "coordination_client",
    "dce_jaxpr",
    "ends_programs",
    "fresh",
    "geqrf",
    "implement",
    "in_place_of",
    "in_scope",
    "load_executable",
    "name_stack",
    "put_alone",
    "select_and_scatter",
    "setting",
]

TABLE = (
    Private("jax._src.core.Var", "passes make variables; jax.extend exports the class but no way to make one"),
    Private("jax.interpreters.partial_eval.dce_jaxpr", "what of a step a pipeline stage needs"),
    Private("jax._src.core.JaxprEqn.source_info", "the scope an operation was traced in, which tells its stage"),
    Private("jax._src.source_info_util.SourceInfo.name_stack", "the scope an operation was traced in"),
    Private("jax._src.lax.linalg.geqrf", "TensorFlow's QR decomposition is lowered to its Householder form"),
    Private(
        "jax._src.lax.windowed_reductions._select_and_scatter",
        "gradients of pooling with a combiner of their own",
    ),
    Private("jaxlib._jax.batched_device_put", "arrays of a few bytes are placed before every execution"),
    Private("jaxlib._jax.Client.deserialize_executable", "executables from the cache"),
    Private("jax._src.source_info_util.user_context", "what replaces an operation keeps the scope it was traced in"),
    Private("jax._src.source_info_util.current_name_stack", "the scopes that lead to such an operation"),
    Private("jax.interpreters.mlir.register_lowering", "primitives that call the native library"),
    Private("jax.interpreters.batching.primitive_batchers", "how replicas, which are lanes, call it together"),
    Private("jax._src.xla_bridge.backends_are_initialized", "whether it is too late to join other processes"),
    Private("jax._src.callback.logger", "it writes the stack of every exception of a callback, expected or not"),
    Private("jax._src.distributed.global_state", "the client of the coordination service: values of the host by name"),
)

# What callbacks raise, of exceptions that are no news: see `ends_programs`.
_Raised = TypeVar("_Raised", bound=type[BaseException])

# What calls of the coordination service raise.
CoordinationError = jax.errors.JaxRuntimeError

dce_jaxpr = partial_eval.dce_jaxpr


def ends_programs(kind: _Raised) -> _Raised:
    """Decorates exceptions with which a callback ends the program that runs: JAX does not write them to its log."""
    _callback.logger.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], kind)))
    return kind


def fresh(aval: AbstractValue) -> Var:
    """A new variable of a jaxpr."""
    return _Var(aval)


def setting(name: str) -> Any:
    """One of JAX's settings, as it is here and now; their names are attributes that no type checker knows."""
    return getattr(jax.config, name)


def name_stack(equation: JaxprEqn) -> str:
    """The scopes an equation was traced in, outermost first."""
    return str(equation.source_info.name_stack)


@contextlib.contextmanager
def in_place_of(equation: JaxprEqn) -> Iterator[None]:
    """What is traced here stands where the equation stood: in its scopes, in its mode."""
    source = equation.source_info
    names = source_info_util.current_name_stack() + source.name_stack
    with source_info_util.user_context(source.traceback, name_stack=names), equation.ctx.manager:
        yield


def implement(primitive: Primitive, lowering: Callable[..., Any], lanes: Callable[..., Any]) -> None:
    """Gives a primitive its meaning on the CPU and its rule for `vmap`."""
    mlir.register_lowering(primitive, lowering, platform="cpu")
    batching.primitive_batchers[primitive] = lanes


def in_scope(equation: JaxprEqn, scope: str) -> JaxprEqn:
    """An equation as if it had been traced in one more scope, the innermost."""
    info = equation.source_info
    return equation.replace(source_info=info.replace(name_stack=info.name_stack.extend(scope)))


def load_executable(data: bytes, devices: Sequence[Any]) -> Any:
    """An executable from XLA's bytes."""
    return devices[0].client.deserialize_executable(data, devices)


def put_alone(value: np.ndarray, where: SingleDeviceSharding) -> jax.Array:
    """What `jax.device_put` makes of an array for one device, in a tenth of its time."""
    return batched_device_put(_like(value.shape, value.dtype), where, [value], list(where.device_set), True)


@functools.lru_cache(maxsize=1024)
def _like(shape: tuple[int, ...], dtype: np.dtype) -> ShapedArray:
    return ShapedArray(shape, dtype)


def backends_initialised() -> bool:
    """Whether JAX has devices already; then the process cannot join others any more."""
    return _xla_bridge.backends_are_initialized()


def coordination_client() -> Any:
    """The client of the coordination service, of a process that has joined others."""
    return _distributed.global_state.client
