"""What is to be run: the captured program and the plan for running it. Pure data, nothing is executed here."""

from openipu.program.plan import OutputMode, Pipeline, Plan, Reduction
from openipu.program.program import Program, Slot
from openipu.program.schedule import Schedule

__all__ = ["OutputMode", "Pipeline", "Plan", "Program", "Reduction", "Schedule", "Slot"]
