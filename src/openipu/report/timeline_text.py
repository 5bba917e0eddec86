"""A timeline as text: coloured in a terminal, plain anywhere else, never wider than the screen."""

from rich.console import Console
from rich.text import Text

from openipu.program import Kind, Timeline
from openipu.program.timing import Durations, idle_fraction
from openipu.report.elide import ends
from openipu.report.palette import WORK

WIDTH = 120
_ELISION = "…"
_UPDATE = "| update"


def render(timeline: Timeline, width: int = WIDTH) -> Text:
    """A timeline as coloured text, one line per IPU, with the middle left out if it is wider than `width`.

    `F3` is the forward and `B3` the backward pass of micro-batch 3, `+` joins what shares a time slot, `.` is idle.
    On an IPU with several stages the stage comes first: `2:F3`.
    """
    cells = [
        [_cell(timeline, slot, device) for device in range(timeline.devices)] for slot in range(len(timeline.slots))
    ]
    sizes = [max(len(str(slot)), *(len(cell) for cell in column)) + 1 for slot, column in enumerate(cells)]
    labels = [f"IPU{device} " for device in range(timeline.devices)]
    margin = max(map(len, labels))
    room = width - margin - (len(_UPDATE) if timeline.training else 0)
    front, back = ends(sizes, room, len(_ELISION) + 1)
    shown = [*range(front), *([None] if back else []), *range(len(cells) - back, len(cells))]

    def line(label: str, texts: list[Text], end: Text) -> Text:
        row = Text(label.ljust(margin), style="bold")
        for slot, text in zip(shown, texts, strict=True):
            text.pad_right((sizes[slot] if slot is not None else len(_ELISION) + 1) - len(text))
            row.append_text(text)
        row.append_text(end)
        row.rstrip()
        return row

    lines = [line("t", [Text(_ELISION if slot is None else str(slot), style="dim") for slot in shown], Text())]
    for device, label in enumerate(labels):
        texts = [Text(_ELISION, style="dim") if slot is None else cells[slot][device].copy() for slot in shown]
        updates = Text(_UPDATE, style=WORK[Kind.UPDATE].fill) if timeline.updates[device] else Text()
        lines.append(line(label, texts, updates))
    return Text("\n", no_wrap=True).join(lines)


def to_text(timeline: Timeline, width: int = WIDTH) -> str:
    """A timeline as plain text; see `render`."""
    return render(timeline, width).plain


def show(timeline: Timeline, console: Console | None = None) -> None:
    """Prints a timeline, in colour if the console is a terminal."""
    console = console or Console()
    # What is piped into a file has no width of its own.
    width = min(WIDTH, console.width) if console.is_terminal else WIDTH
    console.print(render(timeline, width), soft_wrap=True, highlight=False)


def summary(timeline: Timeline, durations: Durations | None = None) -> str:
    """One line that says what a timeline is of and how well it fills the IPUs."""
    return (
        f"{timeline.schedule.name.title()} {'training' if timeline.training else 'inference'}, "
        f"{_number(timeline.stages, 'stage')} on {_number(timeline.devices, 'IPU')}, "
        f"{_number(timeline.count, 'micro-batch', 'micro-batches')}: "
        f"{_number(len(timeline.slots), 'time slot')}, bubble {idle_fraction(timeline, durations):.1%}"
    )


def _cell(timeline: Timeline, slot: int, device: int) -> Text:
    works = timeline.slots[slot][device]
    if not works:
        return Text(".", style="dim")
    shared = len(timeline.stages_on(device)) > 1
    return Text("+").join(
        Text(f"{work.stage}:{work}" if shared else str(work), style=WORK[work.kind].fill) for work in works
    )


def _number(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"
