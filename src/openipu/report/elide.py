"""Leaves out the middle of a row that is too wide to show."""

from collections.abc import Sequence


def ends(widths: Sequence[float], room: float, mark: float) -> tuple[int, int]:
    """How many items to show from the front and from the back.

    Args:
      widths: the width of each item.
      room: the width there is.
      mark: the width of the mark that stands for what is left out.

    Returns:
      Items shown from the front and from the back; `(len(widths), 0)` if all fit. One of each is always shown.
    """
    if sum(widths) <= room or len(widths) < 3:
        return len(widths), 0
    front, back = 1, 1
    left = room - mark - widths[0] - widths[-1]
    while front + back < len(widths) - 1:
        from_front = front <= back
        width = widths[front] if from_front else widths[-1 - back]
        if width > left:
            break
        left -= width
        front, back = front + from_front, back + (not from_front)
    return front, back
