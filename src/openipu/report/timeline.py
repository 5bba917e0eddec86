"""All ways to show a timeline: text for the terminal, a page, a picture."""

from openipu.report.timeline_image import to_image, to_png
from openipu.report.timeline_page import to_html
from openipu.report.timeline_plot import plot
from openipu.report.timeline_text import render, show, summary, to_text

__all__ = ["plot", "render", "show", "summary", "to_html", "to_image", "to_png", "to_text"]
