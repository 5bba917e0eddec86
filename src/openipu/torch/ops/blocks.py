"""Annotations that cut a model into blocks: recorded on the operations while a module is captured."""

import builtins
import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Self

import attrs
import torch
from torch.fx import Graph, Node, traceback

from openipu.contexts import during
from openipu.program import marks
from openipu.torch.boundary import forward_pre_hooks
from openipu.torch.exceptions import Error
from openipu.torch.options import Options

_KEY = "openipu_block"
_NONE = -1
_LAYER_ATTRIBUTE = "_openipu_begin_block"


class Recorder:
    """The blocks met while a module is captured, in the order of their first operation."""

    def __init__(self) -> None:
        self.blocks: list[tuple[str, int | None]] = []
        self._automatic = 0
        self._keeping = contextlib.ExitStack()

    def begin(self, user_id: str | None, ipu_id: int | None) -> None:
        """What is captured from now on belongs to a new block."""
        if not self.blocks:
            self._keeping.enter_context(traceback.preserve_node_meta())
        self.blocks.append((self._name(user_id), ipu_id))
        _annotate(len(self.blocks) - 1)

    def end(self) -> None:
        """The module has been captured: what torch makes of its operations takes their notes over."""
        self._keeping.close()
        traceback.current_meta.get("custom", {}).pop(_KEY, None)

    def restart_names(self) -> None:
        """Number blocks without a name from 0 again."""
        self._automatic = 0

    def _name(self, user_id: str | None) -> str:
        if user_id is not None:
            return str(user_id)
        self._automatic += 1
        return str(self._automatic - 1)


_recorder: contextvars.ContextVar[Recorder | None] = contextvars.ContextVar("openipu_blocks", default=None)


def recording() -> AbstractContextManager[Recorder]:
    """Record blocks; operations captured inside carry the number of theirs."""
    return during(_recorder, Recorder())


@contextlib.contextmanager
def during_forward() -> Iterator[None]:
    """Around the call of the user's module: nothing else must carry the number of a block."""
    try:
        yield
    finally:
        recorder = _recorder.get()
        if recorder is not None:
            recorder.end()


def _annotate(number: int) -> None:
    # torch copies this to the nodes it makes, and to those their decomposition makes.
    traceback.current_meta["custom"] = {**traceback.current_meta.get("custom", {}), _KEY: number}


def _begin(user_id: str | None, ipu_id: int | None) -> None:
    recorder = _recorder.get()
    if recorder is not None:
        recorder.begin(user_id, ipu_id)


class Block(torch.nn.Module):
    """A context whose operations belong to one block; on the host it does nothing.

    Args:
      user_id: the name of the block; None to number it.
      ipu_id: the IPU it runs on.
    """

    def __init__(self, user_id: str | None = None, ipu_id: int | None = None) -> None:
        super().__init__()
        self._user_id, self._ipu_id = user_id, ipu_id

    @staticmethod
    def useAutoId() -> None:
        """Numbers blocks without a name from 0 again; for the start of `forward`."""
        recorder = _recorder.get()
        if recorder is not None:
            recorder.restart_names()

    @staticmethod
    def start(user_id: str | None = None, ipu_id: int | None = None) -> None:
        """Starts a block that lasts until another one starts."""
        _begin(user_id, ipu_id)

    def __enter__(self) -> Self:
        _begin(self._user_id, self._ipu_id)
        return self

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        if _recorder.get() is not None:
            _annotate(_NONE)


class _BeginBlockHook:
    """Starts a block before a layer runs."""

    def __init__(self, user_id: str | None, ipu_id: int | None) -> None:
        self.user_id, self.ipu_id = user_id, ipu_id

    def __call__(self, module: torch.nn.Module, inputs: Any) -> None:
        _begin(self.user_id, self.ipu_id)

    def __repr__(self) -> str:
        return f"BeginBlock(user_id={self.user_id}, ipu_id={self.ipu_id})"


class LegacyBeginBlockFn(torch.nn.Module):
    """A function that starts a block and runs in it."""

    def __init__(self, layer_to_call: Callable, user_id: str | None = None, ipu_id: int | None = None) -> None:
        super().__init__()
        self._layer_to_call, self._user_id, self._ipu_id = layer_to_call, user_id, ipu_id

    def __call__(self, *input: Any, **kwargs: Any) -> Any:
        """Start the block, then call the function."""
        _begin(self._user_id, self._ipu_id)
        return self._layer_to_call(*input, **kwargs)


def BeginBlock(layer_to_call: Any, user_id: str | None = None, ipu_id: int | None = None) -> Any:
    """Lets a layer, and all that runs after it, belong to a block; returns the layer.

    Args:
      layer_to_call: a module, which only gets a hook, or a function, which is wrapped.
      user_id: the name of the block; None to number it.
      ipu_id: the IPU it runs on.
    """
    if isinstance(layer_to_call, torch.nn.Module):
        if hasattr(layer_to_call, _LAYER_ATTRIBUTE):
            raise Error("module has already been assigned to a block.")
        hook = _BeginBlockHook(user_id, ipu_id)
        object.__setattr__(layer_to_call, _LAYER_ATTRIBUTE, layer_to_call.register_forward_pre_hook(hook))
        return layer_to_call
    if not callable(layer_to_call):
        raise Error("module is not an instance of torch.nn.Module or function.")
    return LegacyBeginBlockFn(layer_to_call, user_id, ipu_id)


def BlockFunction(user_id: str | None = None, ipu_id: int | None = None) -> Callable[[Callable], Callable]:
    """A decorator: the body of the function is a block."""

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with Block(user_id, ipu_id):
                return function(*args, **kwargs)

        return run

    return decorate


def removeBlocks(module: torch.nn.Module) -> None:
    """Takes all annotations by `BeginBlock` off a model."""
    for layer in module.modules():
        handle = layer.__dict__.pop(_LAYER_ATTRIBUTE, None)
        if handle is not None:
            handle.remove()


@attrs.frozen(eq=False)
class Stages:
    """Where the operations of a captured module run.

    Attributes:
      ipus: the IPU of every block, in the order in which they run.
      stage_of: the forward stage of every operation.
    """

    ipus: tuple[int, ...]
    stage_of: dict[Node, int]

    @property
    def count(self) -> int:
        """How many forward stages there are."""
        return max(self.stage_of.values(), default=0) + 1

    @property
    def used_ipus(self) -> int:
        """IPUs of one replica."""
        used = {0, *self.ipus}
        return max(len(used), max(used) + 1)

    def around(self, node: Node) -> contextlib.AbstractContextManager:
        """The mark of an operation's stage."""
        return marks.part(self.stage_of.get(node, 0))


def stages(graph: Graph, recorder: Recorder, options: Options) -> Stages:
    """The stages that the blocks of a captured module form under the options' strategy.

    Raises:
      Error: when an operation comes after a block has ended and before another starts.
    """
    placed = [options._execution_strategy.placement(name, ipu) for name, ipu in recorder.blocks]
    stage_of: dict[Node, int] = {}
    ipus: list[int] = []
    stage, ipu = 0, 0
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        number = node.meta.get("custom", {}).get(_KEY)
        if number == _NONE:
            raise Error(
                f"No active Block, all the ops must belong to a Block: {node.target} runs after a Block has ended. "
                "Put it into a Block, or use poptorch.BeginBlock."
            )
        if number is not None and placed[number].ipu != ipu:
            ipu = placed[number].ipu
            stage += 1
        if number is not None and (not ipus or ipus[-1] != ipu):
            ipus.append(ipu)
        stage_of[node] = stage
    return Stages(tuple(ipus), stage_of)


def module_repr(m: torch.nn.Module) -> str:
    """A module as text, with the blocks that start at its layers."""
    return "\n".join(_lines(m, ""))


def _lines(module: torch.nn.Module, name: str) -> list[str]:
    hooks = [repr(h) for h in forward_pre_hooks(module) if isinstance(h, _BeginBlockHook)]
    title = f"({name}): " if name else ""
    children = list(module.named_children())
    head = "".join(f"{hook} " for hook in hooks)
    if not children:
        return [f"{title}{head}{module!r}"]
    inner = [f"  {line}" for key, child in children for line in _lines(child, key)]
    return [f"{title}{head}{type(module).__name__}(", *inner, ")"]


def print(m: torch.nn.Module) -> None:
    """Prints a module with the blocks that start at its layers."""
    builtins.print(module_repr(m))
