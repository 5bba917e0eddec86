"""An estimate as a document: plain JSON with a version, which pages, comparisons and other programs read."""

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from openipu.model import Estimate, IpuMemory, Operation, Stage, Suggestion
from openipu.program import Kind, Timeline
from openipu.program.timing import Span
from openipu.report.measured import Measured
from openipu.version import __version__

FORMAT = "openipu report"
VERSION = 1

Document = dict[str, Any]

_KINDS = {Kind.FORWARD: "forward", Kind.BACKWARD: "backward", Kind.UPDATE: "update"}


@attrs.frozen
class Origin:
    """Where a report comes from.

    Attributes:
      command: the command line of the program.
      training: whether the program has a weight update.
      inputs: names, shapes and types of one micro-batch.
      engine_options: Poplar's engine options that the user gave.
    """

    command: str = ""
    training: bool = True
    inputs: Sequence[tuple[str, tuple[int, ...], str]] = ()
    engine_options: Mapping[str, str] = attrs.field(factory=dict)


def document(
    estimate: Estimate,
    origin: Origin,
    measured: Measured | None = None,
    suggestions: Sequence[Suggestion] = (),
) -> Document:
    """A report as JSON; `schema.json` beside this module describes it.

    Args:
      estimate: what is predicted.
      origin: where it comes from.
      measured: what was measured on this machine; None when nothing ran.
      suggestions: what could be changed.
    """
    index = {operation.name: number for number, operation in enumerate(estimate.operations)}
    return {
        "format": FORMAT,
        "version": VERSION,
        "made": {
            "openipu": __version__,
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "command": origin.command,
        },
        "program": {
            "name": estimate.program,
            "training": origin.training,
            "micro_batch": estimate.micro_batch,
            "inputs": [{"name": n, "shape": list(s), "dtype": d} for n, s, d in origin.inputs],
        },
        "target": _target(estimate),
        "plan": _plan(estimate),
        "options": {**_options(estimate), "engine": dict(origin.engine_options)},
        "prediction": _prediction(estimate),
        "measured": None if measured is None else measured.to_json(),
        "stages": [_stage(stage) for stage in estimate.stages],
        "memory": [_memory(memory, index) for memory in estimate.memory],
        "operations": [_operation(operation) for operation in estimate.operations],
        "pipeline": _pipeline(estimate),
        "suggestions": [attrs.asdict(suggestion) for suggestion in suggestions],
        "warnings": list(estimate.warnings),
        "constants": [attrs.asdict(constant) for constant in estimate.constants],
    }


def _target(estimate: Estimate) -> Document:
    target = estimate.target
    return {
        "name": target.name,
        "architecture": target.architecture,
        "tiles": target.tiles,
        "workers": target.workers,
        "bytes_per_tile": target.bytes_per_tile,
        "memory": target.memory,
        "clock_hz": target.clock_hz,
        "peak_flops": target.peak_flops,
        "peak_flops_float": target.peak_flops_float,
    }


def _plan(estimate: Estimate) -> Document:
    plan, pipeline = estimate.plan, estimate.plan.pipeline
    return {
        "ipus": estimate.ipus,
        "ipus_per_replica": len(estimate.memory),
        "replicas": plan.replicas,
        "stages": len(estimate.stages),
        "schedule": None if pipeline is None else pipeline.schedule.value,
        "gradient_accumulation": plan.gradient_accumulation,
        "device_iterations": plan.device_iterations,
        "updates": plan.updates,
        "stochastic_rounding": plan.stochastic_rounding,
    }


def _options(estimate: Estimate) -> Document:
    return {
        name: value.value if hasattr(value, "value") else value
        for name, value in attrs.asdict(estimate.options, recurse=False).items()
    }


def _prediction(estimate: Estimate) -> Document:
    return {
        "throughput": _number(estimate.throughput),
        "seconds_per_step": _number(estimate.seconds_per_step),
        "seconds_per_batch": _number(estimate.seconds_per_batch),
        "seconds_per_execution": _number(estimate.seconds_per_execution),
        "cycles_per_step": _number(estimate.cycles_per_step),
        "flops_per_step": _number(estimate.flops_per_step),
        "utilisation": _number(estimate.utilisation),
        "shares": {name: _number(value) for name, value in attrs.asdict(estimate.shares).items()},
        "fits": estimate.fits,
        "worst_ipu": estimate.worst.ipu,
        "worst_tile_bytes": estimate.worst.worst_tile,
        "overflow_bytes": estimate.worst.overflow,
    }


def _stage(stage: Stage) -> Document:
    described = attrs.asdict(stage)
    return {name: _number(value) if isinstance(value, float) else value for name, value in described.items()}


def _memory(memory: IpuMemory, index: Mapping[str, int]) -> Document:
    return {
        "ipu": memory.ipu,
        "total": memory.total,
        "capacity": memory.capacity,
        "limit": memory.limit,
        "low": memory.low,
        "high": memory.high,
        "worst_tile": memory.worst_tile,
        "overflow": memory.overflow,
        "streaming": memory.streaming,
        "categories": {category.value: int(size) for category, size in memory.categories.items()},
        "always_live": _integers(memory.always_live),
        "temporaries": _integers(memory.temporaries),
        # Operations by their number: names would be most of the document.
        "liveness": [[index.get(point.operation, -1), int(point.bytes)] for point in memory.liveness],
        "contributors": [
            {"layer": one.layer, "bytes": {category.value: int(size) for category, size in one.bytes.items()}}
            for one in memory.contributors
        ],
    }


def _operation(operation: Operation) -> Document:
    return {
        "name": operation.name,
        "layer": operation.layer,
        "kind": operation.kind.value,
        "stage": operation.stage,
        "phase": operation.phase.value,
        "count": operation.count,
        "flops": _number(operation.flops),
        "bytes": int(operation.bytes),
        "shape": list(operation.shape),
        "dtype": operation.dtype,
        "cycles": _number(operation.cycles),
        "exchange_cycles": _number(operation.exchange_cycles),
        "temporary_bytes": int(operation.temporary_bytes),
        "code_bytes": int(operation.code_bytes),
        "recomputed": operation.recomputed,
    }


def _pipeline(estimate: Estimate) -> Document | None:
    if estimate.timeline is None:
        return None
    return {
        "schedule": estimate.timeline.schedule.value,
        "micro_batches": _micro_batches(estimate),
        "shown": estimate.timeline.count,
        "device_mapping": list(estimate.timeline.device_mapping),
        "bubble": _bubble(estimate, estimate.timeline),
        "spans": [_span(span) for span in estimate.spans],
    }


def _span(span: Span) -> list[Any]:
    work = span.work
    return [span.device, work.stage, work.micro_batch, _KINDS[work.kind], _number(span.start), _number(span.end)]


def _micro_batches(estimate: Estimate) -> int:
    plan = estimate.plan
    training = estimate.timeline is not None and estimate.timeline.training
    return plan.gradient_accumulation if training else plan.device_iterations


def _bubble(estimate: Estimate, shown: Timeline) -> float:
    """The part of the IPUs' time in which they wait, whatever for, the update left out."""
    busy = [0.0] * shown.devices
    for span in estimate.spans:
        if span.work.kind is not Kind.UPDATE:
            busy[span.device] += (span.end - span.start) / shown.count
    length = max(busy) + estimate.shares.bubble
    return float(f"{1 - sum(busy) / len(busy) / length:.6g}") if length else 0.0


def _number(value: float | None) -> float | None:
    """Six digits are more than a prediction knows; JSON has no infinities."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.6g}")


def _integers(values: np.ndarray) -> list[int]:
    return [int(value) for value in np.ceil(values)]
