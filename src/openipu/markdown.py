"""Tables of the pages that are written from declarations."""

import itertools
from collections.abc import Iterable


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table in Markdown, one line a row."""
    lines = itertools.chain([head, ("---",) * len(head)], rows)
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)
