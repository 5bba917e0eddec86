"""`poptorch.optim`: names only, loaded when first touched."""

from poptorch import _lazy

_NAMES: dict[str, str] = dict.fromkeys(
    ("Adam", "AdamW", "LAMB", "Optimizer", "RMSprop", "SGD", "VariableAttributes"), "openipu.torch.optim.optimizers"
)

__getattr__ = _lazy.getattr_for(__name__, _NAMES, globals())


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
