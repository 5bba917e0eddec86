"""Functions that programs have called before and after the capture of any model."""

from collections import OrderedDict
from collections.abc import Callable

from torch.utils.hooks import RemovableHandle

Hook = Callable[[], None]

_before: "OrderedDict[int, Hook]" = OrderedDict()
_after: "OrderedDict[int, Hook]" = OrderedDict()


def registerPreCompileHook(hook: Hook) -> RemovableHandle:
    """Calls a function before every capture; the handle takes it off again."""
    return _register(_before, hook, "Pre")


def registerPostCompileHook(hook: Hook) -> RemovableHandle:
    """Calls a function after every capture, also a failed one; the handle takes it off again."""
    return _register(_after, hook, "Post")


def _register(hooks: "OrderedDict[int, Hook]", hook: Hook, title: str) -> RemovableHandle:
    if not callable(hook):
        raise RuntimeError(f"{title}-compile hook must be callable")
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


def before_capture() -> None:
    """Call the functions registered for before."""
    for hook in list(_before.values()):
        hook()


def after_capture() -> None:
    """Call the functions registered for after."""
    for hook in list(_after.values()):
        hook()
