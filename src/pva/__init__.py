"""The names of libpva that programs read profiles with; here they read openipu's reports, which are predicted."""

from openipu.report.profile import ProgramVisitor, Report, openReport

__all__ = ["ProgramVisitor", "Report", "openReport"]
