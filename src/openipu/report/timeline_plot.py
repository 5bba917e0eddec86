"""Writes a timeline to a file, as the page or picture that the file's name asks for."""

from os import PathLike
from pathlib import Path

from openipu.program import Timeline
from openipu.program.timing import Durations
from openipu.report.timeline_image import to_image
from openipu.report.timeline_page import to_html


def plot(timeline: Timeline, path: str | PathLike[str], durations: Durations | None = None) -> Path:
    """Writes a timeline to a `.html`, `.png` or `.svg` file.

    Args:
      timeline: the timeline.
      path: the file to write; its suffix decides what is written.
      durations: what each kind of work takes on each stage; None gives every piece of work the same time.

    Returns:
      The path of the file.
    """
    path = Path(path)
    match path.suffix.lower():
        case ".html":
            path.write_text(to_html(timeline, durations), encoding="utf-8")
        case ".png" | ".svg":
            to_image(timeline, path, durations)
        case _:
            raise ValueError(f"path must end in .html, .png or .svg. Received: path={str(path)!r}.")
    return path
