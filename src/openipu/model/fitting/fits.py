"""Would it fit? Asked of every program that is compiled or loaded; answered at length only where there is a doubt."""

import contextvars
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
from jax.extend import core

from openipu.errors import OutOfMemoryError
from openipu.hardware.target import Target
from openipu.model.captured import Traced, completed, trace
from openipu.model.fitting.advice import suggestions
from openipu.model.fitting.bound import Bound, bound
from openipu.model.fitting.complaint import complaint
from openipu.model.options import Options
from openipu.model.predict import estimate
from openipu.program import Plan, Program

log = logging.getLogger("openipu.memory")

_RUNS = "It runs here all the same; OPENIPU_MEMORY=off silences this."
_REFUSED = "It is refused as OPENIPU_MEMORY=error asks; with warn or off it runs here all the same."

Notes = dict[str, Any]


@attrs.frozen(eq=False)
class MemoryCheck:
    """Warns of a program that would not fit, or refuses it (an `openipu.compiler.inspection.Inspection`).

    A doubt is cleared up while XLA compiles, so that nobody waits for it. What was found out is kept with the
    executable: a program that comes from the cache is judged without being traced, unless another kind of IPU or other
    options are asked for than when it was compiled.

    Attributes:
      program, plan, target, options: as for `estimate`.
      wish: "warn", "error" (raise `OutOfMemoryError` before anything is compiled), or "off".
      same: what is compiled is this program's step, and not one that does more.
    """

    program: Program
    plan: Plan
    target: Target
    options: Options
    wish: str
    same: bool = True

    @property
    def names(self) -> bool:
        """Whether the step that is compiled can be estimated as it was traced."""
        return self.wish != "off" and self.same and not self.plan.stochastic_rounding

    def traced(self, step: core.ClosedJaxpr, structure: Any) -> Callable[[], Notes]:
        """Judges a program that is compiled."""
        found = bound(self.program, step)
        notes: Notes = {"bound": attrs.asdict(found)}
        if self.wish == "off" or found.fits(self.plan, self.target, self.options):
            return lambda: notes

        def look() -> str | None:
            seen = completed(self.program, self.plan, step, structure) if self.names else None
            return self._complaint(seen)

        if self.wish == "error":
            notes |= self._judged(look)
            return lambda: notes
        pool = ThreadPoolExecutor(1, "openipu-memory")
        future = pool.submit(contextvars.copy_context().run, look)
        pool.shutdown(wait=False)
        return lambda: notes | self._judged(future.result)

    def loaded(self, notes: Notes) -> None:
        """Judges a program by what was noted when it was compiled."""
        if self.wish == "off":
            return
        if notes.get("conditions") == self._conditions():
            self._say(notes["complaint"])
        elif "bound" not in notes or not Bound(**notes["bound"]).fits(self.plan, self.target, self.options):
            self._judged(self._complaint)

    def _conditions(self) -> str:
        return repr((self.target, self.options))

    def _judged(self, look: Callable[[], str | None]) -> Notes:
        """Says what is wrong, if anything is."""
        try:
            text = look()
        except Exception as error:
            # Whether a program would fit is worth less than that it runs.
            name = self.program.name
            log.warning("It cannot be said whether %s would fit on an IPU: %s: %s", name, type(error).__name__, error)
            return {}
        self._say(text)
        return {"conditions": self._conditions(), "complaint": text}

    def _complaint(self, traced: Traced | None = None) -> str | None:
        """What is wrong; None when the program fits after all."""
        traced = traced or trace(self.program, self.plan)
        made = estimate(self.program, self.plan, self.target, self.options, traced)
        return None if made.fits else complaint(made, suggestions(made, self.program, traced))

    def _say(self, text: str | None) -> None:
        if text is None:
            return
        if self.wish == "error":
            raise OutOfMemoryError(f"{text}\n{_REFUSED}")
        log.warning("%s\n%s", text, _RUNS)
