"""The colours of the kinds of work, the same in the terminal, in pictures and on pages."""

import attrs

from openipu.program import Kind


@attrs.frozen
class Colour:
    """How one kind of work looks.

    Attributes:
      name: what the legend says.
      fill: the colour of its area, and of its text in a terminal.
      ink: the colour of text on the area.
    """

    name: str
    fill: str
    ink: str


# Blue and orange stay apart for every common kind of colour blindness.
WORK = {
    Kind.FORWARD: Colour("forward", "#3f7fcb", "#ffffff"),
    Kind.BACKWARD: Colour("backward", "#f2a254", "#3a2208"),
    Kind.UPDATE: Colour("weight update", "#3d9a6c", "#ffffff"),
}
IDLE = Colour("idle", "#e9ebef", "#8a9099")
