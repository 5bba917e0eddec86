"""What is to be run: the captured program and the plan for running it. Pure data, nothing is executed here."""

from openipu.program.limits import Limit, strictest
from openipu.program.plan import OutputMode, Pipeline, Plan, Reduction
from openipu.program.program import Program, Slot
from openipu.program.replica import Layout
from openipu.program.schedule import (
    Kind,
    Schedule,
    ScheduleError,
    Timeline,
    check_count,
    check_mapping,
    stash_depth,
    timeline,
)

__all__ = [
    "Kind",
    "Layout",
    "Limit",
    "OutputMode",
    "Pipeline",
    "Plan",
    "Program",
    "Reduction",
    "Schedule",
    "ScheduleError",
    "Slot",
    "Timeline",
    "check_count",
    "check_mapping",
    "stash_depth",
    "strictest",
    "timeline",
]
