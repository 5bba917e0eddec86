"""A timeline as a picture: one row per IPU, micro-batch numbers in the boxes."""

from os import PathLike
from types import ModuleType
from typing import TYPE_CHECKING

import attrs

from openipu.program import Kind, Timeline
from openipu.program.timing import Durations, Span, spans
from openipu.report.elide import ends
from openipu.report.extra import load
from openipu.report.palette import IDLE, WORK
from openipu.report.timeline_text import summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# In average pieces of work: how much time fits a picture, and what the gap for left-out slots takes.
_ROOM = 52
_GAP = 1.6
_INCHES_PER_PIECE = 0.3
_BAR = 0.78


@attrs.frozen
class _Column:
    """A time slot in the picture; `slot` None is the gap for the slots left out."""

    slot: int | None
    left: float
    width: float


def to_png(timeline: Timeline, path: str | PathLike[str], durations: Durations | None = None) -> None:
    """Draws a timeline into a PNG file; see `to_image`."""
    to_image(timeline, path, durations, "png")


def to_image(
    timeline: Timeline,
    path: str | PathLike[str],
    durations: Durations | None = None,
    format: str | None = None,
) -> None:
    """Draws a timeline into a file, leaving out the middle of a long one.

    Args:
      timeline: the timeline.
      path: the file to write.
      durations: what each kind of work takes on each stage; None gives every piece of work the same time.
      format: `png` or `svg`; None takes the suffix of `path`.
    """
    # Without pyplot there is no window system and no global state.
    figures = load("matplotlib.figure", "The picture of a timeline")
    patches = load("matplotlib.patches", "The picture of a timeline")
    placed = spans(timeline, durations)
    piece = sum(span.end - span.start for span in placed) / len(placed) or 1.0
    columns = _columns(timeline, placed, piece)
    end = columns[-1].left + columns[-1].width
    width = max(7.5, 1.0 + _INCHES_PER_PIECE * end / piece)
    figure = figures.Figure(figsize=(width, 1.35 + 0.42 * timeline.devices), layout="constrained")
    axes = figure.add_subplot()
    for device in range(timeline.devices):
        axes.add_patch(patches.Rectangle((0, device - _BAR / 2), end, _BAR, color=IDLE.fill, linewidth=0, zorder=1))
    begins = _begins(timeline, placed)
    where = {column.slot: column for column in columns if column.slot is not None}
    for span in placed:
        if span.slot in where:
            left = where[span.slot].left + span.start - begins[span.slot]
            _box(axes, patches, timeline, span, left)
    for column in columns:
        if column.slot is None:
            middle = column.left + column.width / 2
            axes.axvspan(column.left, column.left + column.width, color="white", zorder=3, linewidth=0)
            for device in range(timeline.devices):
                axes.text(middle, device, "···", ha="center", va="center", color=IDLE.ink, weight="bold", zorder=4)
    _frame(axes, timeline, columns, end)
    axes.set_title(summary(timeline, durations), loc="left", fontsize=10.5, pad=8)
    kinds = [kind for kind in Kind if any(span.work.kind is kind for span in placed)]
    handles = [patches.Patch(color=WORK[kind].fill, label=WORK[kind].name) for kind in kinds]
    figure.legend(
        handles=[*handles, patches.Patch(color=IDLE.fill, label=IDLE.name)],
        loc="outside lower center",
        ncols=4,
        frameon=False,
        fontsize=9,
        handlelength=1.1,
        handleheight=1.1,
    )
    figure.savefig(path, dpi=160, format=format)


def _begins(timeline: Timeline, placed: tuple[Span, ...]) -> dict[int, float]:
    """When each time slot begins."""
    begins = {slot: float("inf") for slot in range(len(timeline.slots) + 1)}
    for span in placed:
        begins[span.slot] = min(begins[span.slot], span.start)
    return begins


def _columns(timeline: Timeline, placed: tuple[Span, ...], piece: float) -> list[_Column]:
    """The time slots that are shown, side by side; the update is the last one."""
    begins = _begins(timeline, placed)
    lengths = [0.0] * (len(timeline.slots) + timeline.training)
    for span in placed:
        lengths[span.slot] = max(lengths[span.slot], span.end - begins[span.slot])
    front, back = ends(lengths, _ROOM * piece, _GAP * piece)
    shown = [*range(front), *([None] if back else []), *range(len(lengths) - back, len(lengths))]
    columns, left = [], 0.0
    for slot in shown:
        columns.append(_Column(slot, left, _GAP * piece if slot is None else lengths[slot]))
        left += columns[-1].width
    return columns


def _box(axes: "Axes", patches: ModuleType, timeline: Timeline, span: Span, left: float) -> None:
    look = WORK[span.work.kind]
    length = span.end - span.start
    axes.add_patch(
        patches.Rectangle(
            (left, span.device - _BAR / 2),
            length,
            _BAR,
            facecolor=look.fill,
            edgecolor="white",
            linewidth=1.2,
            zorder=2,
        )
    )
    text = span.work.kind.value if span.work.micro_batch is None else str(span.work.micro_batch)
    if len(timeline.stages_on(span.device)) > 1:
        text += f"\ns{span.work.stage}"
    axes.text(
        left + length / 2,
        span.device,
        text,
        ha="center",
        va="center_baseline" if "\n" not in text else "center",
        color=look.ink,
        fontsize=9 if "\n" not in text else 7,
        linespacing=1.0,
        zorder=2.5,
        clip_on=True,
    )


def _frame(axes: "Axes", timeline: Timeline, columns: list[_Column], end: float) -> None:
    slots = [column for column in columns if column.slot is not None and column.slot < len(timeline.slots)]
    axes.set_xlim(0, end)
    axes.set_ylim(timeline.devices - 0.5, -0.5)
    axes.set_yticks(range(timeline.devices), [f"IPU{device}" for device in range(timeline.devices)])
    axes.set_xticks([column.left + column.width / 2 for column in slots], [str(column.slot) for column in slots])
    axes.set_xlabel("time slot", fontsize=9, color=IDLE.ink)
    for column in columns:
        axes.axvline(column.left, color=IDLE.ink, linewidth=0.6, alpha=0.5, zorder=0)
    axes.tick_params(length=0)
    axes.tick_params(axis="x", labelsize=8, labelcolor=IDLE.ink)
    for side in axes.spines.values():
        side.set_visible(False)
