"""From the name scope of a TensorFlow operation to the stage of the layer it comes from."""

import re
from collections.abc import Callable
from typing import Any

import attrs

from openipu.tensorflow.keras.stages.create import stages_for
from openipu.tensorflow.keras.stages.graph import Call, Graph, Kind
from openipu.tensorflow.keras.stages.state import state_of
from openipu.tensorflow.keras.stages.tracing import graph_of
from openipu.tensorflow.keras.versions import version_of

_NUMBERED = re.compile(r"(.+)_\d+")


@attrs.frozen(eq=False)
class _Scope:
    """The scopes that the calls of one model open.

    Attributes:
      exact: by the name TensorFlow gives the scope of each call.
      first: by the name of the layer: its first call.
    """

    exact: dict[str, "_Scope | int"] = attrs.Factory(dict)
    first: dict[str, "_Scope | int"] = attrs.Factory(dict)


def stage_of_scope(model: Any) -> Callable[[str], int | None]:
    """The function from a name scope, such as `gradient_tape/model_1/dense_3/MatMul`, to a stage.

    It gives None for what belongs to no layer: losses, metrics, bare operations such as the `Add` of `x + y`.

    Args:
      model: a pipelined model that is built.
    """
    graph = graph_of(model)
    tree = _scopes(graph, iter(stages_for(graph, state_of(model).assignment)))
    root = re.compile(rf"{re.escape(model.name)}(_\d+)?", re.IGNORECASE)

    def stage(scope: str) -> int | None:
        parts = scope.split("/")
        start = next((i for i, part in enumerate(parts) if root.fullmatch(part)), None)
        found: _Scope | int | None = None if start is None else tree
        for part in parts[start + 1 :] if start is not None else ():
            if not isinstance(found, _Scope):
                break
            found = _look_up(found, part)
        return found if isinstance(found, int) else None

    return stage


def _look_up(scope: _Scope, part: str) -> _Scope | int | None:
    found = scope.exact.get(part.lower())
    while found is None:
        # The numbers differ when a scope is opened more often than once a call (stages run on their own, say).
        found = scope.first.get(part.lower())
        shorter = _NUMBERED.fullmatch(part)
        if found is not None or shorter is None:
            return found
        part = shorter[1]
    return found


def _scopes(graph: Graph, stages: Any) -> _Scope:
    version = version_of(graph.model)
    made = _Scope()
    found: list[tuple[Call, _Scope | int]] = []
    for call in graph.calls:
        found.append((call, next(stages) if call.nested is None else _scopes(call.nested, stages)))
    if graph.kind is Kind.SUBCLASS:
        # `call` makes them in the order of its code, which the nodes of one layer are numbered by.
        found.sort(key=lambda pair: pair[0].node_index)
    names = _Names()
    for call, value in found:
        if version.is_layer(call.layer):
            for _ in range(version.SCOPES_PER_CALL):
                name = names.unique(call.layer.name)
            made.exact[name.lower()] = value
            made.first.setdefault(call.layer.name.lower(), value)
    return made


class _Names:
    """Numbers names as TensorFlow does when a scope of the same name is opened again."""

    def __init__(self) -> None:
        self.used: dict[str, int] = {}

    def unique(self, name: str) -> str:
        key = name.lower()
        number = self.used.get(key, 0)
        self.used[key] = number + 1
        if not number:
            return name
        while f"{key}_{number}" in self.used:
            number += 1
        self.used[f"{key}_{number}"] = 1
        return f"{name}_{number}"
