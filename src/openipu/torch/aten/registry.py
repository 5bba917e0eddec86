"""The table from ATen operations to the functions that evaluate them on JAX arrays."""

from collections.abc import Callable
from typing import Any, TypeVar

import attrs
import jax
from torch.fx import Node

from openipu.torch.aten.dtypes import to_jax
from openipu.torch.boundary import OpOverload, OpOverloadPacket, qualified_name, schema_name

Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)
Target = OpOverload | OpOverloadPacket

Random = bool | Callable[[Node], bool]


@attrs.frozen
class Lowering:
    """How an operation is evaluated.

    Attributes:
      function: takes the operation's arguments (tensors as JAX arrays, all else as torch has it) and returns an array,
        or a tuple with one for each result. The evaluation casts them to the dtypes torch recorded.
      context: whether the function wants a `Context` before the arguments.
      random: whether the function draws from the context's key; may depend on the call.
    """

    function: Handler
    context: bool = False
    random: Random = False

    def draws(self, node: Node) -> bool:
        """Whether this call draws random numbers."""
        return self.random(node) if callable(self.random) else self.random


@attrs.frozen
class Context:
    """What a lowering may ask about the operation it evaluates.

    Attributes:
      node: the operation in the captured graph.
      key: the random key, particular to this operation; None when the program was given none.
    """

    node: Node
    key: jax.Array | None

    @property
    def value(self) -> Any:
        """What torch recorded about the result: a tensor without data, or several."""
        return self.node.meta["val"]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the only result."""
        return tuple(self.value.shape)

    @property
    def dtype(self) -> Any:
        """The dtype of the only result."""
        return to_jax(self.value.dtype)

    @property
    def drawing_key(self) -> jax.Array:
        """The random key, where one must have been given."""
        assert self.key is not None
        return self.key

    def uses(self, index: int) -> bool:
        """Whether anybody reads result number `index` of an operation with several."""
        return any(len(user.args) < 2 or user.args[1] == index for user in self.node.users)


_LOWERINGS: dict[str, Lowering] = {}
_HIGHER: dict[Any, Callable[[Node], Lowering]] = {}
_REFUSALS: dict[str, str] = {}


def op(*targets: Target, context: bool = False, random: Random = False) -> Callable[[H], H]:
    """Register a function for ATen operations.

    Args:
      targets: overloads (`aten.add.Tensor`), or packets (`aten.add`) to mean every overload without its own function.
      context, random: see `Lowering`; random functions always get the context.
    """
    return _register([_name(target) for target in targets], context or bool(random), random)


def lowering(*names: str, context: bool = False, random: Random = False) -> Callable[[H], H]:
    """Register a function for custom operations, named `namespace::name`."""
    for name in names:
        if "::" not in name:
            raise ValueError(f"Expected a name of the form namespace::name. Received: {name!r}.")
    return _register(list(names), context or bool(random), random)


def _register(names: list[str], context: bool, random: Random) -> Callable[[H], H]:
    def register(function: H) -> H:
        for name in names:
            if name in _LOWERINGS:
                raise ValueError(f"Expected one lowering for each operation. Received a second one for {name}.")
            _LOWERINGS[name] = Lowering(function, context, random)
        return function

    return register


def higher(target: Any) -> Callable[[H], H]:
    """Register a function that makes the lowering of one call of an operation on graphs (branches, loops)."""

    def register(make: H) -> H:
        _HIGHER[target] = make
        return make

    return register


def find_for(node: Node) -> Lowering | None:
    """The lowering of one call, or None."""
    if node.target in _HIGHER:
        return _HIGHER[node.target](node)
    return find(node.target)


def refuse(reason: str, *targets: Target) -> None:
    """Declare operations that cannot be supported, with the reason told to the user."""
    for target in targets:
        _REFUSALS[_name(target)] = reason


def find(target: Any) -> Lowering | None:
    """The lowering of an operation, or None."""
    if not isinstance(target, OpOverload):
        return None
    found = _LOWERINGS.get(target.name())
    return found if found is not None else _LOWERINGS.get(schema_name(target))


def size() -> int:
    """How many operations have been declared, which changes whenever the table does."""
    return len(_LOWERINGS) + len(_REFUSALS)


def names() -> list[str]:
    """The operations that have been declared, as `namespace::name` or `namespace::name.overload`."""
    return [*_LOWERINGS, *_REFUSALS]


def reason(target: Any) -> str:
    """Why an operation without lowering is refused."""
    if isinstance(target, OpOverload):
        for name in (target.name(), schema_name(target)):
            if name in _REFUSALS:
                return _REFUSALS[name]
    return "it has no lowering"


def refused(target: Any) -> bool:
    """Whether an operation is declared impossible, so that decomposing it would only hide its name."""
    if not isinstance(target, OpOverload):
        return False
    return target.name() in _REFUSALS or schema_name(target) in _REFUSALS


def _name(target: Target) -> str:
    if isinstance(target, OpOverloadPacket):
        return qualified_name(target)
    return target.name()
