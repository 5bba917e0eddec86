"""Options written as text: JSON and files of calls, understood without evaluating any code."""

import ast
import contextvars
import enum
import json
import pathlib
from collections.abc import Callable
from typing import Any

from openipu.torch import enums
from openipu.torch.exceptions import ConfigFileError
from openipu.torch.options import strategies
from openipu.torch.options.base import OptionsDict
from openipu.torch.options.locations import TensorLocationSettings
from openipu.torch.options.popart import _PopartOptions

ENUMS: dict[str, type[enum.Enum]] = {
    name: value for name, value in vars(enums).items() if isinstance(value, type) and issubclass(value, enum.Enum)
}

# Letters of a line, and of those how many an error shows.
_LONGEST, _SHOWN = 10_000, 200
# The files that are being read: one may load another.
_reading: contextvars.ContextVar[frozenset[pathlib.Path]] = contextvars.ContextVar("reading", default=frozenset())

# What a line of a file may make; everything else in the namespace is out of reach.
_MAKERS: dict[str, Callable[..., Any]] = {
    "TensorLocationSettings": TensorLocationSettings,
    "Stage": strategies.Stage,
    "Phase": strategies.Phase,
    "PipelinedExecution": strategies.PipelinedExecution,
    "ShardedExecution": strategies.ShardedExecution,
    "SerialPhasedExecution": strategies.SerialPhasedExecution,
    "ParallelPhasedExecution": strategies.ParallelPhasedExecution,
}
_CALLABLE = (OptionsDict, _PopartOptions, strategies.Stage, strategies.Phase, strategies._IExecutionStrategy)


def apply_json(options: OptionsDict, text: str) -> None:
    """Calls the methods a JSON object names.

    Args:
      options: what the methods belong to.
      text: accessors such as "Training.gradientAccumulation" and their argument, or a list of arguments.
    """
    try:
        given = json.loads(text)
    except RecursionError:
        raise ValueError("Options in JSON are nested too deeply.") from None
    if not isinstance(given, dict):
        raise ValueError(f"Options in JSON must be an object. Received: {text!r}.")
    for accessor, value in given.items():
        target: Any = options
        for name in accessor.split("."):
            target = _member(target, name)
        arguments = value if isinstance(value, list) else [value]
        target(*[_enum_member(argument) for argument in arguments])


def apply_file(options: OptionsDict, filepath: str) -> None:
    """Makes the calls a file lists, one per line, without the name of the options object before them."""
    path = pathlib.Path(filepath)
    if path.resolve() in _reading.get():
        raise ConfigFileError(f"{path.name} loads itself, directly or by another file. Remove its loadFromFile line.")
    token = _reading.set(_reading.get() | {path.resolve()})
    try:
        _apply_lines(options, path)
    finally:
        _reading.reset(token)


def _apply_lines(options: OptionsDict, path: pathlib.Path) -> None:
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except UnicodeDecodeError:
        raise ConfigFileError(f"{path.name} is not a text file.") from None
    kept = [line for line in lines if line and not line.startswith("#")]
    for number, line in enumerate(kept, start=1):
        try:
            if len(line) > _LONGEST:
                raise SyntaxError(f"a line must not have more than {_LONGEST} letters")
            tree = ast.parse(f"options.{line}", mode="eval").body
            if not isinstance(tree, ast.Call):
                raise SyntaxError("a line must be a call such as deviceIterations(1)")
            _evaluate(tree, options)
        except SyntaxError as error:
            raise ConfigFileError(
                f"{type(error).__name__} at line {number} of {path.name}: {error.msg}\n> options.{line[:_SHOWN]}"
            ) from None
        except (RecursionError, MemoryError, ValueError) as error:
            if isinstance(error, ValueError) and "null bytes" not in str(error):
                raise
            raise ConfigFileError(
                f"Line {number} of {path.name} is nested too deeply or is no text.\n> options.{line[:_SHOWN]}"
            ) from None


def _enum_member(value: Any) -> Any:
    if not isinstance(value, str) or value.count(".") != 1:
        return value
    kind, member = value.split(".")
    return ENUMS[kind][member] if kind in ENUMS and member in ENUMS[kind].__members__ else value


def _evaluate(node: ast.expr, options: OptionsDict) -> Any:
    """The value of an expression made of literals, names of the poptorch namespace and calls of options."""
    if isinstance(node, ast.Call):
        function = _function(node.func, options)
        arguments = [_evaluate(argument, options) for argument in node.args]
        return function(*arguments, **{_keyword(word): _evaluate(word.value, options) for word in node.keywords})
    if isinstance(node, ast.Attribute):
        return _enumeration(node)
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        items = [_evaluate(item, options) for item in node.elts]
        return {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(node)](items)
    if isinstance(node, ast.Dict):
        keys = [_evaluate(_key(key), options) for key in node.keys]
        return dict(zip(keys, [_evaluate(value, options) for value in node.values], strict=True))
    if isinstance(node, ast.Name):
        raise NameError(f"name '{node.id}' is not defined")
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise _refusal(node) from None


def _function(node: ast.expr, options: OptionsDict) -> Callable[..., Any]:
    """What a call calls: a method of the options, of something made on the line, or a maker of the namespace."""
    if not isinstance(node, ast.Attribute):
        if isinstance(node, ast.Name):
            raise NameError(f"name '{node.id}' is not defined")
        raise _refusal(node)
    if isinstance(node.value, ast.Name) and node.value.id == "poptorch":
        if node.attr not in _MAKERS:
            raise _refusal(node)
        return _MAKERS[node.attr]
    return _member(_receiver(node.value, options), node.attr)


def _receiver(node: ast.expr, options: OptionsDict) -> Any:
    if isinstance(node, ast.Name) and node.id == "options":
        return options
    if isinstance(node, ast.Attribute):
        return _member(_receiver(node.value, options), node.attr)
    if isinstance(node, ast.Call):
        return _evaluate(node, options)
    raise _refusal(node)


def _member(target: Any, name: str) -> Any:
    if not isinstance(target, _CALLABLE) or (name.startswith("_") and name != "_Popart"):
        raise AttributeError(f"Invalid attribute {name}.")
    return getattr(target, name)


def _enumeration(node: ast.Attribute) -> Any:
    path = ast.unparse(node).split(".")
    if path[0].isidentifier() and path[0] != "poptorch":
        raise NameError(f"name '{path[0]}' is not defined")
    if path[:2] == ["poptorch", "enums"]:
        path = ["poptorch", *path[2:]]
    if len(path) == 3 and path[0] == "poptorch" and path[1] in ENUMS:
        return getattr(ENUMS[path[1]], path[2])
    raise _refusal(node)


def _keyword(word: ast.keyword) -> str:
    if word.arg is None:
        raise _refusal(word.value)
    return word.arg


def _key(node: ast.expr | None) -> ast.expr:
    if node is None:
        raise SyntaxError("** is not allowed here")
    return node


def _refusal(node: ast.AST) -> SyntaxError:
    return SyntaxError(
        f"only literals, poptorch enumerations, strategies and location settings are allowed, not {ast.unparse(node)!r}"
    )
