"""The queues by their names: a program that was traced knows the names of its feeds only."""

import itertools
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openipu.tensorflow.feeds.infeed import IPUInfeedQueue
    from openipu.tensorflow.feeds.outfeed import IPUOutfeedQueue

_numbers = itertools.count()
_queues: "weakref.WeakValueDictionary[str, Any]" = weakref.WeakValueDictionary()


def register(queue: "IPUInfeedQueue | IPUOutfeedQueue", kind: str) -> str:
    """A name for a new queue."""
    name = f"{kind}_{next(_numbers)}"
    _queues[name] = queue
    return name


def find(name: str) -> Any:
    """The queue with this name; a program holds on to its queues, so they live as long as it does."""
    return _queues[name]
