"""Functions that programs have called before and after the capture of any model."""

import contextlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, ClassVar

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


class _OverwriteContextManager:
    """Objects that replace something while a module is captured, for packages that extend poptorch."""

    _managers: ClassVar[list[type]] = []

    @classmethod
    def registerSubsitutionManager(cls, type: type) -> None:
        """Registers a class whose objects have `replace()` and `restore()`."""
        if type not in cls._managers:
            cls._managers.append(type)

    def __enter__(self) -> None:
        self._stack = contextlib.ExitStack()
        for kind in self._managers:
            manager: Any = kind()
            manager.replace()
            self._stack.callback(manager.restore)

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        self._stack.close()


def before_capture() -> None:
    """Call the functions registered for before."""
    for hook in list(_before.values()):
        hook()


def after_capture() -> None:
    """Call the functions registered for after."""
    for hook in list(_after.values()):
        hook()
