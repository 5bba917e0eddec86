"""`poptorch._poplar_executor`: names only, loaded when first touched."""

from poptorch import _lazy

_NAMES = {name: source for name, source in _lazy.NAMES.items() if source.endswith(".executor")}

__getattr__ = _lazy.getattr_for(__name__, _NAMES, globals())


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
