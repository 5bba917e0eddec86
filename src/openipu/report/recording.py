"""Records one program for its report: predicted when it is compiled, measured while it runs."""

import atexit
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openipu import hardware, model
from openipu.errors import ReportError
from openipu.hardware.processes import command_line
from openipu.program import Plan, Program
from openipu.report.document import Document, Origin, document
from openipu.report.measured import LISTED, Measured
from openipu.report.writing import check_folder, write

if TYPE_CHECKING:
    from openipu.runtime import Setting

log = logging.getLogger("openipu.report")

_COUNT = "autoReport.executionProfileProgramRunCount"
_unfinished: "list[Recorder]" = []


class Recorder:
    """Writes the report of one program: as soon as it is compiled, and again, with what was measured, at the end.

    Attributes:
      folder: where the report is.
      measured: what was measured.
    """

    def __init__(
        self, program: Program, plan: Plan, setting: "Setting", folder: Path, engine_options: Mapping[str, Any]
    ) -> None:
        """Refuses a folder that cannot be written, before anything is compiled."""
        self.folder = folder.absolute()
        check_folder(self.folder.parent)
        self._program, self._plan, self._setting = program, plan, setting
        self._engine_options = {name: str(value) for name, value in engine_options.items()}
        self._document: Document | None = None
        self._process = os.getpid()
        self.measured = Measured(listed=_listed(self._engine_options))

    def compiled(self, seconds: float) -> None:
        """Predicts, and writes the report."""
        self.measured.compile_seconds = seconds
        program = self._program
        try:
            traced = model.trace(program, self._plan)
            target = hardware.current_system().target
            estimate = model.estimate(program, self._plan, target, self._setting.asked, traced)
            suggestions = () if estimate.fits else model.suggestions(estimate, program, traced)
        except Exception:
            # What the user computes is worth more than its report.
            log.exception("There is no report of %s: the model of the IPU failed.", program.name)
            return
        if estimate.micro_batch is not None:
            self.measured.samples = estimate.micro_batch * self._plan.replicas * self._plan.device_iterations
        inputs = [(slot.name, slot.shape, slot.dtype.name) for slot in program.batch]
        origin = Origin(command_line(), program.update is not None, inputs, self._engine_options)
        self._document = document(estimate, origin, self.measured, suggestions)
        page = write(self.folder, self._document)
        log.info("The report of %s is in %s", program.name, page)
        _unfinished.append(self)

    def executed(self, seconds: float) -> None:
        """Notes how long an execution took."""
        self.measured.add(seconds)

    @property
    def document(self) -> Document | None:
        """The report with what was measured so far; None when there is none."""
        return None if self._document is None else {**self._document, "measured": self.measured.to_json()}

    def finish(self) -> None:
        """Writes the report again, with what was measured."""
        if (document := self.document) is not None and self.measured.executions and os.getpid() == self._process:
            write(self.folder, document)


def _listed(options: Mapping[str, str]) -> int:
    given = options.get(_COUNT, str(LISTED))
    if not given.isdecimal() or not int(given):
        raise ReportError(f"{_COUNT} must be a positive whole number. Received: {given!r}.")
    return int(given)


def documents() -> list[Document]:
    """The reports of this process so far, in the order in which their programs were compiled."""
    return [one for recorder in _unfinished if (one := recorder.document) is not None]


@atexit.register
def finish_all() -> None:
    """Writes all reports of this process for the last time."""
    while _unfinished:
        try:
            _unfinished.pop().finish()
        except Exception as error:
            log.error("%s", error)
