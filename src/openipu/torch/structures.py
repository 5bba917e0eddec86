"""Containers of tensors: taken apart into their tensors, put together again, with parsers users register."""

import abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from openipu.torch.exceptions import Error


class ICustomArgParser(abc.ABC):
    """How a container type of the user's own is taken apart and put together."""

    @abc.abstractmethod
    def yieldTensors(self, struct: Any) -> Iterable[torch.Tensor]:
        """The tensors of `struct`, always in the same order."""

    @abc.abstractmethod
    def reconstruct(self, original_structure: Any, tensor_iterator: Iterator[torch.Tensor]) -> Any:
        """A container like `original_structure` with the tensors of the iterator instead of its own."""


_parsers: dict[type, ICustomArgParser] = {}


def registerCustomArgParser(arg_data_type: type, arg_parser: ICustomArgParser | None) -> None:
    """Registers how containers of one type are handled; None takes the registration back.

    Args:
      arg_data_type: the container type; its subclasses are handled in the same way.
      arg_parser: an instance of a class derived from `ICustomArgParser`.
    """
    if arg_parser is None:
        _parsers.pop(arg_data_type, None)
        return
    if not isinstance(arg_parser, ICustomArgParser):
        raise Error("arg_parser must inherit from ICustomArgParser")
    _parsers[arg_data_type] = arg_parser


def custom_parser(value: Any) -> ICustomArgParser | None:
    """The parser registered for the type of `value`, or for one it derives from."""
    exact = _parsers.get(type(value))
    if exact is not None:
        return exact
    return next((parser for kind, parser in _parsers.items() if isinstance(value, kind)), None)


def registered_parsers() -> dict[type, ICustomArgParser]:
    """All registrations, to be repeated in another process."""
    return dict(_parsers)


def leaves(structure: Any) -> list[Any]:
    """What a nested structure of tuples, lists, dicts and registered types holds, in order; tensors and others."""
    parser = custom_parser(structure)
    if parser is not None:
        return list(parser.yieldTensors(structure))
    if isinstance(structure, dict):
        return [leaf for value in structure.values() for leaf in leaves(value)]
    if isinstance(structure, tuple | list):
        return [leaf for value in structure for leaf in leaves(value)]
    return [structure]


def rebuild(structure: Any, values: Iterable[Any]) -> Any:
    """A structure like `structure` whose leaves are `values`, in the order of `leaves`."""
    return _rebuild(structure, iter(values))


def map_leaves(function: Callable[[Any], Any], structure: Any) -> Any:
    """A structure like `structure` with `function` applied to every leaf."""
    return rebuild(structure, map(function, leaves(structure)))


def _rebuild(structure: Any, values: Iterator[Any]) -> Any:
    parser = custom_parser(structure)
    if parser is not None:
        return parser.reconstruct(structure, values)
    if isinstance(structure, dict):
        items = {key: _rebuild(value, values) for key, value in structure.items()}
        # Keyword or mapping constructors differ between dict subclasses; a copy that is filled keeps the type.
        if type(structure) is dict:
            return items
        made = structure.copy()
        for key, value in items.items():
            made[key] = value
        return made if isinstance(made, type(structure)) else type(structure)(items)
    if isinstance(structure, tuple | list):
        items = [_rebuild(value, values) for value in structure]
        if hasattr(structure, "_fields"):
            return type(structure)(*items)
        return type(structure)(items)
    return next(values)


def combine_batch_tensors_gen(tensors: Sequence[Sequence[torch.Tensor]]) -> Iterator[torch.Tensor]:
    """The tensors of several batches, each in the order of one batch, put together along their first axis."""
    return (torch.cat(list(parts)) for parts in zip(*tensors, strict=True))
