"""The arguments of a call: matched to the signature of `forward`, checked, compared with those compiled for."""

import inspect
from collections.abc import Iterator
from typing import Any

import torch

from openipu.torch.exceptions import Error, UnsupportedError
from openipu.torch.logger import logger
from openipu.torch.structures import custom_parser, leaves, map_leaves

_HINT = (
    "\nThis error occurred because the inputs passed at runtime don't match the inputs used to compile the model.\n"
    "To recompile the model either call `executor.destroy()` or create a new wrapper with `poptorch.inferenceModel` or "
    "`poptorch.trainingModel`."
)
_PASSED = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.float16, torch.float32)
_NARROWED = {torch.float64: torch.float32, torch.bfloat16: torch.float32}


class Arguments:
    """Arguments in the order of the signature: positions, then what `*args` took, then what `**kwargs` took."""

    def __init__(self, names: list[str], values: list[Any], keywords: dict[str, Any]) -> None:
        self.names = names
        self.values = values
        self.keywords = keywords

    @property
    def args(self) -> tuple:
        """Those at positions, under the name that libraries on top of poptorch know."""
        return tuple(self.values)

    @property
    def kwargs(self) -> dict[str, Any]:
        """Those by name."""
        return dict(self.keywords)


class Signature:
    """The signature of a module's `forward`."""

    def __init__(self, forward: Any) -> None:
        parameters = list(inspect.signature(forward).parameters.values())
        kinds = inspect.Parameter
        self._plain = [p for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
        self._only = [p for p in parameters if p.kind is kinds.KEYWORD_ONLY]
        self._rest = next((p.name for p in parameters if p.kind is kinds.VAR_POSITIONAL), None)
        self._keywords = next((p.name for p in parameters if p.kind is kinds.VAR_KEYWORD), None)

    def bind(self, args: tuple, kwargs: dict[str, Any]) -> Arguments:
        """Match arguments to parameters, so that it does not matter which were given by name."""
        known = [p.name for p in self._plain]
        if len(args) > len(known) and self._rest is None:
            raise AssertionError(f"Too many arguments provided: expected {known} ({len(known)}) but got {len(args)}")
        names, values = list(known), list(args[: len(known)])
        named = dict(kwargs)
        for name in known[: len(args)]:
            if name in named:
                raise AssertionError(f"Parameter {name} was passed more than once")
        for parameter in self._plain[len(args) :]:
            values.append(_taken(parameter, named))
        for index, value in enumerate(args[len(known) :]):
            names.append(f"*{self._rest}[{index}]")
            values.append(value)
        keywords = {parameter.name: _taken(parameter, named) for parameter in self._only}
        if named and self._keywords is None:
            allowed = [*known, *(p.name for p in self._only)]
            raise AssertionError(f"{next(iter(named))} is not a valid parameter.Allowed values are {allowed}")
        return Arguments(names, values, {**keywords, **named})


def _taken(parameter: inspect.Parameter, named: dict[str, Any]) -> Any:
    if parameter.name in named:
        return named.pop(parameter.name)
    if parameter.default is inspect.Parameter.empty:
        raise Error(f"Mandatory parameter {parameter.name} missing")
    return parameter.default


def tensor_on_device(tensor: torch.Tensor, wide: bool = False) -> torch.Tensor:
    """A tensor as it is fed: detached, contiguous, of a type the device has.

    Args:
      tensor: the user's.
      wide: whether float64 is kept, for modules whose weights are float64.
    """
    if type(tensor) is not torch.Tensor:
        tensor = tensor.as_subclass(torch.Tensor)
    if tensor.numel() == 0:
        raise Error(f"Zero-sized tensors are unsupported (Got shape {list(tensor.shape)})")
    if tensor.requires_grad:
        logger.warning(
            "Input tensor has requires_grad=True set. This tensor will be detached because backward pass via inputs is "
            "not supported."
        )
        tensor = tensor.detach()
    if tensor.dtype in _NARROWED and not (wide and tensor.dtype == torch.float64):
        tensor = tensor.to(_NARROWED[tensor.dtype])
    elif tensor.dtype not in (*_PASSED, torch.float64):
        raise Error(f"Unsupported input type {tensor.dtype}")
    return tensor.contiguous()


def refuse_packed(structure: Any) -> None:
    """Refuses packed sequences anywhere in arguments: their rows are no batch that could be cut."""
    if isinstance(structure, torch.nn.utils.rnn.PackedSequence):
        raise UnsupportedError(
            "Packed sequences are not supported: their layout depends on the lengths, which are data. Pass padded "
            "sequences, and mask what is beyond the lengths."
        )
    if isinstance(structure, dict):
        structure = list(structure.values())
    if isinstance(structure, tuple | list):
        for value in structure:
            refuse_packed(value)


def check_same(expected: Arguments, given: Arguments) -> None:
    """Refuses arguments that differ from those a model was compiled for."""
    if len(expected.values) != len(given.values):
        raise Error(
            f"Number of positional arguments mismatch: expected {len(expected.values)} arguments but got "
            f"{len(given.values)}.{_HINT}"
        )
    for name, old, new in zip(expected.names, expected.values, given.values, strict=True):
        _compare(name, old, new)
    _compare("named arguments", expected.keywords, given.keywords)


def _compare(name: str, old: Any, new: Any) -> None:
    if type(old) is not type(new) and not (_is_tensor(old) and _is_tensor(new)):
        raise Error(f"Type mismatch for {name}: expected {type(old)} but got {type(new)}.{_HINT}")
    parser = custom_parser(old)
    if parser is not None:
        old, new = list(parser.yieldTensors(old)), list(parser.yieldTensors(new))
    if isinstance(old, dict):
        _compare_keys(name, old, new)
        for key in old:
            _compare(str(key) if name == "named arguments" else f"{name}[{key}]", old[key], new[key])
    elif isinstance(old, tuple | list):
        if len(old) != len(new):
            raise Error(f"Length mismatch for {name}: expected {len(old)} elements but got {len(new)}.{_HINT}")
        for index, (first, second) in enumerate(zip(old, new, strict=True)):
            _compare(f"{name}[{index}]", first, second)
    elif _is_tensor(old):
        if old.dtype != new.dtype:
            raise Error(f"Data type mismatch for {name}: expected {old.dtype} but got {new.dtype}.{_HINT}")
        if old.shape != new.shape:
            raise Error(f"Shape mismatch for {name}: expected {old.shape} but got {new.shape}.{_HINT}")
    elif old is not new and old != new:
        raise Error(f"Value mismatch for {name}: expected {old} but got {new}.{_HINT}")


def _compare_keys(name: str, old: dict, new: dict) -> None:
    unexpected, missing = [k for k in new if k not in old], [k for k in old if k not in new]
    if not unexpected and not missing:
        return
    parts = [
        f"{title}: {', '.join(map(str, keys))}."
        for title, keys in (("Unexpected arguments", unexpected), ("Missing arguments", missing))
        if keys
    ]
    raise Error(f"Keys mismatch for {name}: {' '.join(parts)}{_HINT}")


def abstract(arguments: Arguments) -> Arguments:
    """The arguments without the data of their tensors, to be kept."""
    values = [_emptied(value) for value in arguments.values]
    return Arguments(arguments.names, values, {key: _emptied(v) for key, v in arguments.keywords.items()})


def _emptied(value: Any) -> Any:
    return map_leaves(lambda leaf: torch.empty_like(leaf, device="meta") if _is_tensor(leaf) else leaf, value)


def leaves_like(expected: Any, given: Any) -> list[Any]:
    """The leaves of `given` in the order of `expected`: the keys of a dict may come in another order."""
    if isinstance(expected, dict) and custom_parser(expected) is None:
        return [leaf for key in expected for leaf in leaves_like(expected[key], given[key])]
    if isinstance(expected, tuple | list) and custom_parser(expected) is None:
        return [leaf for old, new in zip(expected, given, strict=True) for leaf in leaves_like(old, new)]
    return leaves(given)


def tensors(structure: Any) -> Iterator[torch.Tensor]:
    """The tensors of arguments, in the order in which they are fed."""
    return (leaf for leaf in leaves(structure) if _is_tensor(leaf))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)
