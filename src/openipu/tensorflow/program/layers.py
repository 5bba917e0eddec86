"""From the name scope of a TensorFlow operation to the layer it comes from, for reports."""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator

from openipu.program import marks

_GRADIENT = "gradient_tape"
_NUMBER = re.compile(r"(.+)_\d+")
# Names that operations of Keras' and TensorFlow's own functions open scopes with; all others are in camel case.
_FUNCTIONS = frozenset({
    "convolution", "div_no_nan", "einsum", "mul", "pow", "random_uniform",
    "stack", "stateless_dropout", "stateless_random_normal", "stateless_random_uniform", "strided_slice", "sub",
    "transpose", "truediv", "unstack",
})  # fmt: skip

Within = Callable[[str], contextlib.AbstractContextManager]


def named(within: Within | None, variables: Iterable[str]) -> Within:
    """Marks every operation with its layer, within the context it is evaluated in anyway.

    Args:
      within: that context.
      variables: names of variables, which begin with those of their layers.
    """
    roots = {name.partition("/")[0] for name in variables}

    @contextlib.contextmanager
    def marked(scope: str) -> Iterator[None]:
        path, backward = layer_of(scope, roots)
        with contextlib.nullcontext() if within is None else within(scope), marks.layer(path, backward):
            yield

    return marked


def layer_of(scope: str, roots: Iterable[str] = ()) -> tuple[str, bool]:
    """The path of a layer, and whether an operation belongs to its backward pass.

    Args:
      scope: the operation's name, such as `gradient_tape/model_1/dense_1/MatMul/MatMul_1`.
      roots: names of models, as their variables have them. TensorFlow numbers the scopes of a second call.
    """
    parts = scope.split("/")
    backward = parts[0] == _GRADIENT
    parts = parts[1:] if backward else parts
    parts = parts[:-1]
    while parts and _is_function(parts[-1]):
        parts.pop()
    if parts and parts[0] not in roots and _plain(parts[0]) in roots:
        parts = [_plain(part) for part in parts]
    return "/".join(parts), backward


def _is_function(part: str) -> bool:
    return part[:1].isupper() or _plain(part) in _FUNCTIONS or part in _FUNCTIONS


def _plain(part: str) -> str:
    """A name without the number that TensorFlow added."""
    found = _NUMBER.fullmatch(part)
    return found[1] if found else part
