"""What is to be run: the captured program and the plan for running it. Pure data, nothing is executed here."""

from openipu.program.plan import OutputMode, Plan, Reduction
from openipu.program.program import Program, Slot

__all__ = ["OutputMode", "Plan", "Program", "Reduction", "Slot"]
