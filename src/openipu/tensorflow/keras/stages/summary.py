"""Prints which layer is in which stage."""

from collections.abc import Callable, Sequence
from typing import Any

from openipu.tensorflow.keras.stages.graph import Graph, Kind

_HEADERS = ("Layer (type) (node index)", "Input Layers", "Pipeline Stage")
_SEQUENTIAL_HEADERS = ("Layer (type)", "Pipeline Stage")


def print_summary(
    graph: Graph, assignments: Sequence[Any], line_length: int | None, print_fn: Callable[[str], Any] | None
) -> None:
    """Print the table of a model.

    Args:
      graph: of the model.
      assignments: of its layers.
      line_length: width; 60 for Sequential models and 89 for others when not given.
      print_fn: called with each line; `print` by default.
    """
    sequential = graph.kind is Kind.SEQUENTIAL
    table = _Table(line_length or (60 if sequential else 89), sequential, print_fn or print)
    table.print(f'Model: "{graph.model.name}"')
    table.rule("_")
    table.row(_SEQUENTIAL_HEADERS if sequential else _HEADERS)
    table.rule("=")
    table.rows(assignments)


class _Table:
    def __init__(self, width: int, sequential: bool, print_fn: Callable[[str], Any]) -> None:
        self.width, self.sequential, self.print = width, sequential, print_fn
        self.ends = [int(width * part) for part in ((0.5, 1.0) if sequential else (0.4, 0.8, 1.0))]

    def rule(self, sign: str) -> None:
        self.print(sign * self.width)

    def row(self, fields: Sequence[str]) -> None:
        line = ""
        for field, end in zip(fields, self.ends, strict=True):
            # One space at least stays between two columns.
            width = end - len(line)
            line += field[: width - (end != self.ends[-1])].ljust(width)
        self.print(line)

    def rows(self, assignments: Sequence[Any], last: str = "=") -> None:
        for position, item in enumerate(assignments):
            if item.is_nested_model:
                self.print(f'Nested Model: "{item.nested_model.name}"')
                self.rule("-")
                self.rows(item.pipeline_stage_assignments, "-")
            else:
                self._layer(item)
            if position < len(assignments) - 1:
                self.rule("_")
        self.rule(last)

    def _layer(self, item: Any) -> None:
        label = f"{item.layer.name} ({type(item.layer).__name__})"
        stage = str(item.pipeline_stage)
        if self.sequential:
            self.row((label, stage))
            return
        index = getattr(item, "node_index", None)
        label = label if index is None else f"{label} ({index})"
        inbound = [layer.name for layer in item.inbound_layers] if index is not None else []
        self.row((label, inbound[0] if inbound else "", stage))
        for name in inbound[1:]:
            self.row(("", name, ""))
