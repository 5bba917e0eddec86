"""Who looks at programs while they are compiled and run: a report, the planner, or nobody."""

from collections.abc import Callable
from typing import Any, Protocol

from openipu.program import Plan, Program


class Watcher(Protocol):
    """Looks at one program. It only hears: what it does changes nothing of what is computed."""

    def compiled(self, seconds: float) -> None:
        """The program was made ready to run, which took so long."""
        ...

    def executed(self, seconds: float) -> None:
        """One execution is over, which took so long."""
        ...


# Called with a program, its plan and its setting before it is compiled; may refuse by raising. None: nobody looks.
Watch = Callable[[Program, Plan, Any], Watcher | None]


def nobody(program: Program, plan: Plan, setting: Any) -> None:
    """Nobody looks."""
    return None
