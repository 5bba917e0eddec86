"""What TensorFlow 1 programs extract from traces of a compiler, answered with predicted reports of this process.

There are no traces, so `events` are not looked at. A report says itself that it is an estimate.
"""

import json
import logging
from typing import Any

from openipu.report.recording import documents
from openipu.version import __version__

log = logging.getLogger("openipu.report")

_NOTE = f"Predicted by openipu {__version__}; nothing of it was measured on an IPU, but what is under 'measured' here."
_COMMON = ("format", "version", "made", "program", "target", "plan")
_COMPILED = ("options", "memory", "suggestions", "warnings")
_EXECUTED = ("prediction", "stages", "operations", "pipeline", "measured")


def extract_compile_reports(events: Any) -> list[tuple[str, str]]:
    """Name and report (JSON) of every profiled program: its target, plan and memory."""
    return _reports(_COMPILED)


def extract_execute_reports(events: Any) -> list[tuple[str, str]]:
    """Name and report (JSON) of every profiled program: its time, operation by operation."""
    return _reports(_EXECUTED)


def extract_all_strings_from_event_trace(events: Any) -> str:
    """All those reports, one after the other."""
    return "\n".join(f"{name}: {text}" for name, text in (*_reports(_COMPILED), *_reports(_EXECUTED)))


def no_events(events: Any) -> list:
    """What only traces of the original's compiler have."""
    log.warning(
        "There are no event traces, and no serialised graphs: the list is empty. What would be predicted for an IPU is "
        "in extract_compile_reports and extract_execute_reports, and in the folder of the report."
    )
    return []


def _reports(parts: tuple[str, ...]) -> list[tuple[str, str]]:
    found = documents()
    if not found:
        log.warning(
            "There are no reports to extract: no program was profiled. Use create_ipu_config(profiling=True), or "
            'POPLAR_ENGINE_OPTIONS=\'{"autoReport.all":"true"}\', or run the program with `openipu report`.'
        )
    return [
        (one["program"]["name"], json.dumps({"estimate": _NOTE, **{name: one[name] for name in (*_COMMON, *parts)}}))
        for one in found
    ]
