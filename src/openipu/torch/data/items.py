"""What a loader's item is made of, and how items are joined and cut along their first dimension."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from openipu.torch.structures import custom_parser, leaves, rebuild


def flat_tensors(item: Any) -> list[torch.Tensor]:
    """The tensors of an item that crosses a process boundary: one, a flat container of them, or a registered type."""
    if isinstance(item, torch.Tensor):
        return [item]
    parser = custom_parser(item)
    if parser is not None:
        found: list[Any] = list(parser.yieldTensors(item))
    elif isinstance(item, dict):
        found = list(item.values())
    elif isinstance(item, tuple | list):
        found = list(item)
    else:
        found = [item]
    for index, tensor in enumerate(found):
        assert isinstance(tensor, torch.Tensor), (
            f"Tensor at index {index} is not a torch tensor ({type(tensor)}). AsynchronousDataAccessor expects data to "
            "be organised as a flat 1D container of tensors."
        )
    return found


def template_of(item: Any) -> Any:
    """What the other process needs to build items like this one: the container, without the data where possible."""
    if custom_parser(item) is not None:
        return item
    if isinstance(item, torch.Tensor):
        return None
    return dict.fromkeys(item) if isinstance(item, dict) else [None] * len(item)


def build(template: Any, tensors: list[torch.Tensor]) -> Any:
    """An item from its tensors: a bare tensor, a list (also for what was a tuple), a dict or a registered type."""
    if template is None:
        return tensors[0]
    return rebuild(template, tensors)


def joined(items: list[Any]) -> Any:
    """Several items as one, their tensors concatenated along the first dimension."""
    if len(items) == 1:
        return items[0]
    columns = zip(*(leaves(item) for item in items), strict=True)
    return rebuild(items[0], [torch.cat(column) for column in columns])


def groups(items: Iterable[Any], size: int, keep_rest: bool) -> Iterator[Any]:
    """Every `size` consecutive items as one.

    Args:
      items: the items.
      size: how many become one.
      keep_rest: whether fewer than `size` at the end are an item too.
    """
    waiting: list[Any] = []
    for item in items:
        waiting.append(item)
        if len(waiting) == size:
            yield joined(waiting)
            waiting = []
    if waiting and keep_rest:
        yield joined(waiting)


def rebatched(items: Iterable[Any], rows: int, keep_rest: bool) -> Iterator[Any]:
    """Items cut anew, so that each has `rows` rows.

    Args:
      items: items of any number of rows.
      rows: rows of the new items.
      keep_rest: whether fewer rows at the end are an item too.
    """
    waiting: list[list[torch.Tensor]] = []
    count = 0
    template = None
    for template in items:
        tensors = [t for t in leaves(template) if isinstance(t, torch.Tensor)]
        waiting.append(tensors)
        count += tensors[0].shape[0]
        if count < rows:
            continue
        whole = [torch.cat(column) for column in zip(*waiting, strict=True)]
        while count >= rows:
            yield rebuild(template, [t[:rows] for t in whole])
            whole = [t[rows:] for t in whole]
            count -= rows
        waiting = [whole] if count else []
    if waiting and keep_rest:
        yield rebuild(template, [torch.cat(column) for column in zip(*waiting, strict=True)])
