"""Reports as pages: one file that needs nothing else, not even a network."""

import html
import json
from importlib import resources

from openipu.report.document import Document

# In the order in which they are evaluated.
SCRIPTS = (
    "format.js", "elements.js", "charts.js", "summary.js", "memory.js", "liveness.js", "operations.js", "layers.js",
    "pipeline.js", "compare.js", "main.js",
)  # fmt: skip


def page(document: Document, other: Document | None = None) -> str:
    """A report as HTML.

    Args:
      document: the report.
      other: a second one, which the page compares it with.
    """
    title = document["program"]["name"]
    if other is not None and other["program"]["name"] != title:
        title += f" and {other['program']['name']}"
    parts = {
        "title": html.escape(title),
        "style": _file("style.css"),
        "script": "\n".join(_file(name) for name in SCRIPTS),
        "report": _embedded(document),
        "other": _embedded(other),
    }
    text = _file("page.html")
    # Filled in one pass, so that nothing that a program is called can be taken for a place of the template.
    pieces = text.split("@@")
    return "".join(parts[piece] if number % 2 else piece for number, piece in enumerate(pieces))


def _embedded(document: Document | None) -> str:
    # Within a script element only "</" and "<!--" mean something.
    return json.dumps(document, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _file(name: str) -> str:
    return resources.files("openipu.report.page").joinpath(name).read_text(encoding="utf-8")
