"""A timeline as a page: zoom into it, point at a piece of work to read what it is."""

from typing import Any

from openipu.program import Kind, Timeline
from openipu.program.timing import Durations, Span, spans
from openipu.report.extra import load
from openipu.report.palette import IDLE, WORK
from openipu.report.timeline_text import summary


def to_html(timeline: Timeline, durations: Durations | None = None, full_page: bool = True) -> str:
    """A timeline as HTML.

    Args:
      timeline: the timeline.
      durations: what each kind of work takes on each stage; None gives every piece of work the same time.
      full_page: whether to make a page that needs nothing else, not even a network; otherwise a fragment for a page
        that has loaded plotly.js.

    Returns:
      The HTML.
    """
    graph = load("plotly.graph_objects", "The page of a timeline")
    placed = spans(timeline, durations)
    figure = graph.Figure()
    for kind in Kind:
        works = [span for span in placed if span.work.kind is kind]
        if works:
            figure.add_bar(**_bars(kind, works))
    figure.update_layout(
        title={"text": summary(timeline, durations), "font": {"size": 16}},
        barmode="overlay",
        bargap=0.25,
        height=180 + 46 * timeline.devices,
        plot_bgcolor=IDLE.fill,
        font={"family": "system-ui, sans-serif"},
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
        # Numbers too large for their bar disappear until one zooms in.
        uniformtext={"minsize": 9, "mode": "hide"},
        xaxis={"title": {"text": "time" if durations else "time, one piece of work = 1"}, "gridcolor": "white"},
        yaxis={
            "type": "category",
            "categoryorder": "array",
            "categoryarray": [f"IPU{device}" for device in range(timeline.devices)],
            "range": [timeline.devices - 0.5, -0.5],
            "gridcolor": IDLE.fill,
        },
    )
    return figure.to_html(full_html=full_page, include_plotlyjs=full_page)


def _bars(kind: Kind, works: list[Span]) -> dict[str, Any]:
    """One bar for each piece of work of a kind."""
    look = WORK[kind]
    return {
        "name": look.name,
        "orientation": "h",
        "y": [f"IPU{span.device}" for span in works],
        "base": [span.start for span in works],
        "x": [span.end - span.start for span in works],
        "text": ["U" if kind is Kind.UPDATE else str(span.work.micro_batch) for span in works],
        "hovertext": [_hover(look.name, span) for span in works],
        "hoverinfo": "text",
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "constraintext": "none",
        "marker": {"color": look.fill, "line": {"color": "white", "width": 1}},
        "textfont": {"color": look.ink},
    }


def _hover(name: str, span: Span) -> str:
    where = "" if span.work.kind is Kind.UPDATE else f"<br>micro-batch {span.work.micro_batch}<br>time slot {span.slot}"
    return f"<b>{name}</b>, stage {span.work.stage}{where}<br>{span.start:g} to {span.end:g}"
