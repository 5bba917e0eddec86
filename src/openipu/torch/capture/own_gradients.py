"""`torch.autograd.Function`s of the user's own: what their `backward` says is what trains, not what JAX would derive.

While a module is captured, the forward pass of such a function is recorded like any other code, without gradient, and
its results go through one operation, `openipu::own_gradient`, that also takes the inputs and what the function saved.
When the capture is over, `backward` is captured as well, as a module of its own, and becomes the derivative of that
operation.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import jax
import jax.numpy as jnp
import torch
from jax import lax
from torch.autograd.function import FunctionCtx
from torch.fx import GraphModule, Node
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import CheckpointFunction

from openipu.compiler import digest
from openipu.contexts import during
from openipu.torch.aten.registry import Context, lowering
from openipu.torch.boundary import has_backward, has_setup_context, no_dispatch, plain_apply, pytree, replaced_apply
from openipu.torch.capture import graph_text, traced_tensors
from openipu.torch.capture.semantics import IpuSemantics
from openipu.torch.exceptions import Error, UnsupportedError
from openipu.torch.tracing import differentiates

if TYPE_CHECKING:
    from openipu.torch.capture.module import Captured


_TENSOR = object()


class _Ctx(FunctionCtx):
    """What a function's `forward` and `backward` share."""

    to_save: tuple = ()
    dirty_tensors: tuple = ()
    non_differentiable: tuple = ()

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad

    @property
    def saved_tensors(self) -> tuple:
        return tuple(self.to_save)

    def save_for_forward(self, *tensors: torch.Tensor) -> None:
        """Without effect: there is no forward-mode derivative."""


@attrs.frozen(eq=False)
class Call:
    """One call of a function.

    Attributes:
      function: the user's class.
      ctx: what its `forward` left.
      attributes: the structure of what `ctx` holds; its tensors are given to the operation.
      leaves: what is in that structure, `_TENSOR` in place of each tensor.
      saved: a tensor without data for each of them.
      outputs: for every result of `forward`, a tensor without data; None for what is no tensor.
      inputs: for every argument that a gradient is wanted of, its number and a tensor without data.
      count: how many arguments there are.
      differentiable: for every tensor among the results whether a gradient flows through it.
    """

    function: Any
    ctx: _Ctx
    attributes: pytree.TreeSpec
    leaves: list[Any]
    saved: list[torch.Tensor]
    outputs: list[torch.Tensor | None]
    inputs: list[tuple[int, torch.Tensor]]
    count: int
    differentiable: list[bool]

    @property
    def name(self) -> str:
        return self.function.__name__


@torch.library.custom_op("openipu::own_gradient", mutates_args=())
def _own_gradient(
    results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], saved: Sequence[torch.Tensor], backward: str
) -> list[torch.Tensor]:
    """The results, with a derivative of their own."""
    return [result.clone() for result in results]


@_own_gradient.register_fake
def _own_gradient_fake(results: Any, inputs: Any, saved: Any, backward: str) -> list[torch.Tensor]:
    return [torch.empty_like(result) for result in results]


_calls: contextvars.ContextVar[list[Call] | None] = contextvars.ContextVar("openipu_functions", default=None)


@contextlib.contextmanager
def recording() -> Iterator[list[Call]]:
    """Gathers the calls of functions while a module is captured."""
    calls: list[Call] = []
    with during(_calls, calls), replaced_apply(_apply):
        yield calls


def _apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
    calls = _calls.get()
    if calls is None or cls.__module__.startswith("torch._"):
        # The second are torch's own machinery, around operations that are lowered.
        return plain_apply(cls)(*args, **kwargs)
    if cls is CheckpointFunction:
        # What is kept and what is computed again is the compiler's decision.
        function, _, *inputs = args
        return function(*inputs)
    wanted = differentiates() and torch.is_grad_enabled()
    needs = tuple(wanted and isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args)
    # Copies from before `forward` runs, which may write its arguments: gradients flow to what they were.
    sources = [arg.clone() for arg, needed in zip(args, needs, strict=True) if needed]
    ctx = _Ctx(needs)
    with torch.no_grad():
        if has_setup_context(cls):
            result = cls.forward(*args, **kwargs)
            cls.setup_context(ctx, args, result)
        else:
            result = cls.forward(ctx, *args, **kwargs)
    if not sources:
        return result
    if not has_backward(cls) and cls.vjp is cls.backward:
        raise Error(
            f"{cls.__name__} has no gradient: it must implement either the backward or vjp method to be trained."
        )
    several = isinstance(result, tuple)
    results = list(result) if several else [result]
    made = iter(_with_gradient(cls, ctx, args, needs, results, sources, calls))
    final = [next(made) if isinstance(item, torch.Tensor) else item for item in results]
    for number, item in enumerate(results):
        if any(item is dirty for dirty in ctx.dirty_tensors):
            final[number] = item.copy_(final[number])
    return tuple(final) if several else final[0]


def _with_gradient(
    cls: Any,
    ctx: _Ctx,
    args: tuple,
    needs: tuple[bool, ...],
    results: list[Any],
    sources: list[torch.Tensor],
    calls: list[Call],
) -> list[torch.Tensor]:
    leaves, attributes = pytree.tree_flatten(dict(vars(ctx)))
    saved = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    tensors = [item for item in results if isinstance(item, torch.Tensor)]
    constant = [any(t is item for item in ctx.non_differentiable) or not t.is_floating_point() for t in tensors]
    call = Call(
        function=cls,
        ctx=ctx,
        attributes=attributes,
        leaves=[_TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves],
        saved=[_bare(tensor) for tensor in saved],
        outputs=[_bare(item) if isinstance(item, torch.Tensor) else None for item in results],
        inputs=[(number, _bare(args[number])) for number, needed in enumerate(needs) if needed],
        count=len(args),
        differentiable=[not flag for flag in constant],
    )
    calls.append(call)
    made = _own_gradient(tensors, sources, saved, str(len(calls) - 1))
    return [item.detach() if flag else item for item, flag in zip(made, constant, strict=True)]


def _bare(tensor: torch.Tensor) -> torch.Tensor:
    with no_dispatch():
        return torch.empty(tuple(tensor.shape), dtype=tensor.dtype, device="meta")


class _OwnTensors(TorchFunctionMode):
    """Refuses parameters that a `backward` was not given: they would be compiled in with their present values."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if any(isinstance(leaf, torch.nn.Parameter) for leaf in pytree.tree_leaves((args, kwargs))):
            raise UnsupportedError(
                f"The backward of {self._name} uses a parameter that is neither an argument of the function nor saved "
                "in ctx. Pass it to apply() and save it with ctx.save_for_backward."
            )
        return func(*args, **(kwargs or {}))


class _Returned:
    """What a `backward` has no gradient for; an object, because `torch.export` takes back what modules assign."""

    missing: Sequence[int] = ()


class _Backward(torch.nn.Module):
    """The `backward` of one call as a module: the gradients of results and what was saved -> those of inputs."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self._call = call
        self.returned = _Returned()

    def examples(self) -> tuple[torch.Tensor, ...]:
        outputs = [output for output in self._call.outputs if output is not None]
        return tuple(torch.zeros(t.shape, dtype=t.dtype) for t in (*outputs, *self._call.saved))

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        call, given = self._call, iter(tensors)
        gradients = [None if output is None else next(given) for output in call.outputs]
        leaves = [next(given) if leaf is _TENSOR else leaf for leaf in call.leaves]
        ctx = _Ctx(call.ctx.needs_input_grad)
        vars(ctx).update(pytree.tree_unflatten(leaves, call.attributes))
        function = call.function
        rule = function.backward if has_backward(function) else function.vjp
        with IpuSemantics(), traced_tensors.on_ipu(), _OwnTensors(call.name), torch.no_grad():
            made = rule(ctx, *gradients)
        made = made if isinstance(made, tuple | list) else (made,)
        if len(made) < call.count or any(item is not None for item in made[call.count :]):
            raise Error(
                f"function {call.name}Backward returned an incorrect number of gradients (expected {call.count}, got "
                f"{len(made)})"
            )
        self.returned.missing = [place for place, (number, _) in enumerate(call.inputs) if made[number] is None]
        return tuple(_fitted(call, made[n], n, like) for n, like in call.inputs if made[n] is not None)


def _fitted(call: Call, gradient: torch.Tensor, number: int, like: torch.Tensor) -> torch.Tensor:
    """A gradient in the shape and type of its input, as torch makes it; refused where torch refuses."""
    if gradient.shape != like.shape:
        try:
            gradient = gradient.sum_to_size(like.shape)
        except RuntimeError as error:
            raise Error(
                f"Function {call.name}Backward returned an invalid gradient at index {number} - got "
                f"{list(gradient.shape)} but expected shape compatible with {list(like.shape)}"
            ) from error
    return gradient.to(like.dtype)


@attrs.frozen(eq=False)
class Derivative:
    """A captured `backward`.

    Attributes:
      captured: gradients of results and what was saved -> gradients of inputs.
      missing: numbers of the inputs it has no gradient for.
      differentiable: for every result whether a gradient flows through it.
    """

    captured: "Captured"
    missing: list[int]
    differentiable: list[bool]


_derivatives: dict[str, Derivative] = {}


def trace(module: GraphModule, calls: Sequence[Call], capture: "Callable[..., Captured]") -> None:
    """Capture the `backward` of every recorded call that is left in a graph."""
    for graph in (part.graph for part in module.modules() if isinstance(part, GraphModule)):
        for node in graph.nodes:
            if _is_own(node):
                results, inputs, saved, number = node.args
                node.args = (results, inputs, saved, _traced(calls[int(str(number))], capture))


def _traced(call: Call, capture: "Callable[..., Captured]") -> str:
    """Captures the `backward` of a call; returns a key that tells it from others."""
    backward = _Backward(call)
    captured = capture(backward, backward.examples())
    constants = [(name, value.dtype, value.shape, value.tobytes()) for name, value in captured.constants.items()]
    key = digest(
        *graph_text.lines(captured.graph), repr(constants), repr(backward.returned.missing), repr(call.differentiable)
    )
    _derivatives[key] = Derivative(captured, list(backward.returned.missing), call.differentiable)
    return key


def derivative_of(node: Node) -> "Captured | None":
    """The captured `backward` of an operation that has one of its own."""
    return _derivatives[str(node.args[3])].captured if _is_own(node) else None


def _is_own(node: Node) -> bool:
    return node.op == "call_function" and node.target is torch.ops.openipu.own_gradient.default


def _draws(node: Node) -> bool:
    return _derivatives[str(node.args[3])].captured.needs_key


@lowering("openipu::own_gradient", random=_draws)
def _lowered(context: Context, results: Any, inputs: Any, saved: Any, backward: str) -> tuple:
    found = _derivatives[backward]
    shapes = [(value.shape, value.dtype) for value in inputs]

    @jax.custom_vjp
    def call(results: list, inputs: list, saved: list, key: Any) -> list:
        return results

    def forward(results: list, inputs: list, saved: list, key: Any) -> tuple:
        return results, (saved, key)

    def back(kept: tuple, cotangents: list) -> tuple:
        saved, key = kept
        given = [
            c if flows else jnp.zeros(r.shape, r.dtype)
            for c, r, flows in zip(cotangents, results, found.differentiable, strict=True)
        ]
        made = iter(found.captured([], [], [*given, *saved], key)[0])
        gradients = [jnp.zeros(*shape) if place in found.missing else next(made) for place, shape in enumerate(shapes)]
        return None, gradients, None, None

    call.defvjp(forward, back)
    made = call(
        [lax.stop_gradient(r) for r in results], list(inputs), [lax.stop_gradient(s) for s in saved], context.key
    )
    return tuple(made)
