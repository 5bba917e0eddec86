"""Whether a program is to be reported or planned, as the engine options and the environment say."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openipu import environment
from openipu.program import Plan, Program
from openipu.runtime.watching import Watch, Watcher, nobody

if TYPE_CHECKING:
    from openipu.runtime import Setting

_ASKS = ("autoReport.all", "autoReport.outputGraphProfile", "autoReport.outputExecutionProfile")


def watch_for(front_end: str, options: Mapping[str, Any], folder_name: Callable[[Program], str]) -> Watch:
    """Who looks at the programs of a front end.

    Args:
      front_end: `tensorflow` or `poptorch`, for advice in its words.
      options: Poplar's engine options, from wherever the user may give them.
      folder_name: the folder of a program's report within the directory of reports.
    """
    request = environment.plan_request()
    if request:

        def plan(program: Program, plan: Plan, setting: "Setting") -> Watcher | None:
            from openipu.planner.answering import answer

            return answer(Path(request), front_end, program, plan, setting)

        return plan
    directory = report_directory(options)
    if directory is None:
        return nobody

    def record(program: Program, plan: Plan, setting: "Setting") -> Watcher | None:
        from openipu.report.recording import Recorder

        return Recorder(program, plan, setting, directory / folder_name(program), options)

    return record


def report_directory(options: Mapping[str, Any]) -> Path | None:
    """Where reports go; None when nobody asked for any."""
    if not any(str(options.get(name, "false")).lower() == "true" for name in _ASKS):
        return None
    return Path(str(options.get("autoReport.directory") or "."))
