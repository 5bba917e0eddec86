"""Running programs compiled ahead of time, under the path IPU programs know."""

from openipu.tensorflow.applications.runtime import (
    RuntimeContext,
    embedded_runtime_call,
    embedded_runtime_start,
    embedded_runtime_start_and_call,
    embedded_runtime_stop,
)

__all__ = [
    "RuntimeContext",
    "embedded_runtime_call",
    "embedded_runtime_start",
    "embedded_runtime_start_and_call",
    "embedded_runtime_stop",
]
