"""Which layer a weight or a state belongs to: its name is not always written as its layer's operations are."""

import functools
import re
from collections import defaultdict
from collections.abc import Iterable

_COUNT = re.compile(r"_\d+$")


def layer_of_slot(name: str, layers: frozenset[str]) -> str:
    """The layer that a slot belongs to, by its name: "conv1/kernel:0" and "conv1.weight" belong to "conv1".

    Args:
      name: of the slot.
      layers: those of operations. Front ends put a prefix before one or the other, and Keras counts scopes ("conv1_1").
    """
    path = name.partition(":")[0].replace(".", "/").rpartition("/")[0]
    if not path or path in layers:
        return path
    last = path.rpartition("/")[2]
    for known in (_plain(layers), _counted(layers)):
        found = [one for short, one in known.get(last, ()) if _same(path, short)]
        if found:
            # Two layers of one name: the longer path says more of where it is.
            return max(found, key=lambda one: (len(one), one))
    return path


@functools.lru_cache(maxsize=4)
def _plain(layers: frozenset[str]) -> dict[str, list[tuple[str, str]]]:
    """Layers by the last part of their names."""
    return _by_last((one, one) for one in layers)


@functools.lru_cache(maxsize=4)
def _counted(layers: frozenset[str]) -> dict[str, list[tuple[str, str]]]:
    """The same without the numbers that Keras gave them."""
    return _by_last((_COUNT.sub("", one), one) for one in layers)


def _by_last(pairs: Iterable[tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for short, one in pairs:
        found[short.rpartition("/")[2]].append((short, one))
    return found


def _same(path: str, layer: str) -> bool:
    return path == layer or path.endswith(f"/{layer}") or layer.endswith(f"/{path}")
