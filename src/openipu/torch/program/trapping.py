"""Floating-point exceptions in the words of a torch program: operations are found again by the names of their nodes."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import jax
from torch.fx import Node

from openipu.torch.aten.evaluate import Around, source_line
from openipu.torch.capture.module import Captured
from openipu.torch.exceptions import Error

_PREFIX = "openipu_node_"
_PATTERN = re.compile(_PREFIX + r"(\w+)")


def named(around: Around | None) -> Around:
    """Marks every operation with its node's name, within the context it is evaluated in anyway."""

    @contextlib.contextmanager
    def marked(node: Node) -> Iterator[None]:
        with contextlib.nullcontext() if around is None else around(node), jax.named_scope(_PREFIX + node.name):
            yield

    return marked


def explain(site: Any, captured: Captured) -> Error:
    """The error that an exception at a site is to the program."""
    found = _PATTERN.findall(site.scope)
    if site.update:
        where = "in a weight update"
    elif not found:
        where = "in the backward pass"
    else:
        (node,) = [node for node in captured.graph.nodes if node.name == found[-1]]
        # What the backward pass needs of an operation is computed along with it.
        part = ", in its backward pass" if site.backward else " or its backward pass" if "jvp(" in site.scope else ""
        where = f"in {node.target}{part} ({source_line(node)})"
    return Error(
        f"A floating-point exception happened {where}: an overflow, a division by zero, or an operation that is not "
        "defined for its values. Options.Precision.enableFloatingPointExceptions(False) lets such values pass."
    )
