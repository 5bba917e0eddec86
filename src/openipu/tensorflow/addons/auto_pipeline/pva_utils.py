"""Reads what layers and stages take from a report: cycles, and memory by what it is for.

Reports are opened with `pva.openReport`. They are predicted, so where a profile of hardware tells things apart that
the prediction does not, the functions say which of them counts both.
"""

from collections.abc import Iterator
from typing import Any

from openipu.errors import ReportError
from openipu.model import Category, Pass
from openipu.report.document import Document
from openipu.tensorflow.addons.auto_pipeline.types import CycleInfo

_PARAMETERS = (Category.WEIGHTS, Category.OPTIMIZER_STATE, Category.ACCUMULATORS, Category.STATE)


def check_report(report: Any, name: str) -> None:
    """Refuse a report that says nothing about a layer.

    Args:
      report: the report.
      name: of the layer.
    """
    if not any(True for _ in _operations(report, name)):
        known = ", ".join(sorted({one["layer"] for one in report.document["operations"] if one["layer"]}))
        raise ReportError(f"The report has no operations of layer {name}. It has: {known or 'none with a name'}.")


def get_vertex_code(report: Any, ipu_id: int = 0) -> int:
    """Bytes of the code of operations on one IPU, with the state of their vertices."""
    return _own_code(report, ipu_id) - get_internal_exchange_code(report, ipu_id)


def get_internal_exchange_code(report: Any, ipu_id: int = 0, name: str | None = None) -> int:
    """Bytes of the code for exchanges between the tiles of one IPU, of all of it or of one layer."""
    whole = _memory(report, ipu_id)["categories"][Category.EXCHANGE.value]
    return whole if name is None else _share_of_layer(report, ipu_id, name, whole)


def get_vertex_instance_state(report: Any, ipu_id: int = 0) -> int:
    """No bytes: a prediction counts the state of vertices with their code, in `get_vertex_code`."""
    _memory(report, ipu_id)
    return 0


def get_control_code(report: Any, ipu_id: int = 0, name: str | None = None) -> int:
    """Bytes of the code on one IPU that belongs to no operation; a layer has none of it."""
    categories = _memory(report, ipu_id)["categories"]
    whole = categories[Category.CODE.value] + categories[Category.EXCHANGE.value] - _own_code(report, ipu_id)
    return whole if name is None else 0


def get_max_live_memory(report: Any, ipu_id: int = 0) -> int:
    """Bytes in use on one IPU at the worst moment."""
    memory = _memory(report, ipu_id)
    always = sum(size for name, size in memory["categories"].items() if name != Category.TEMPORARIES.value)
    return always + max((size for _, size in memory["liveness"]), default=0)


def get_parameter_from_not_always_alive(report: Any, ipu_id: int = 0) -> int:
    """Bytes of weights and state of one IPU that are only there while they are used: they live in streaming memory."""
    return _memory(report, ipu_id)["streaming"]


def get_parameter_from_always_live(report: Any, ipu_id: int = 0, name: str | None = None) -> int:
    """Bytes of weights, optimizer state and accumulators on one IPU, of all of it or of one layer."""
    memory = _memory(report, ipu_id)
    if name is None:
        return sum(memory["categories"][category.value] for category in _PARAMETERS)
    return sum(
        one["bytes"].get(category.value, 0)
        for one in memory["contributors"]
        if _is_of(one["layer"], name)
        for category in _PARAMETERS
    )


def get_total_memory(report: Any, ipu_id: int = 0) -> int:
    """Bytes of one IPU that are taken, what comes and goes at its worst moment included."""
    return _memory(report, ipu_id)["total"]


def get_program_step_cycle(step: Any) -> int:
    """Cycles of one step of a program: those of the IPU that takes longest.

    Args:
      step: one of `report.execution.steps`.
    """
    return max((ipu.cycles for ipu in step.ipus), default=0)


def get_exec_step_cycle(step: Any, ipu_id: int = 0) -> int:
    """Cycles of one step of a program on one IPU."""
    return step.ipus[ipu_id].cycles


def get_layer_cycle(report: Any, name: str, compile_only: bool) -> CycleInfo:
    """Cycles of one layer.

    Args:
      report: the report.
      name: of the layer.
      compile_only: whether to take predictions rather than measurements; reports have no others.
    """
    check_report(report, name)
    sums = dict.fromkeys(Pass, 0.0)
    for one in _operations(report, name):
        sums[Pass(one["phase"])] += one["cycles"] * one["count"]
    return {"forward": sums[Pass.FORWARD], "backward": sums[Pass.BACKWARD], "update": sums[Pass.UPDATE]}


def get_pipeline_stage_cycles(report: Any, compute_cycle_only: bool = True) -> list[CycleInfo]:
    """Cycles of every stage.

    Args:
      report: the report.
      compute_cycle_only: whether to leave out the copies between IPUs; otherwise each pass has half of them.
    """
    clock = report.document["target"]["clock_hz"]
    found: list[CycleInfo] = []
    for stage in report.document["stages"]:
        copies = 0.0 if compute_cycle_only else stage["copies"] / 2
        forward, backward = stage["forward"] + copies, stage["backward"] + copies
        found.append({"forward": forward * clock, "backward": backward * clock, "update": stage["update"] * clock})
    return found


def get_single_ipu_cycles(report: Any, compute_cycle_only: bool = True) -> CycleInfo:
    """Cycles of all stages together, as one IPU would take them; arguments as of `get_pipeline_stage_cycles`."""
    stages = get_pipeline_stage_cycles(report, compute_cycle_only)
    return {
        "forward": sum(stage["forward"] for stage in stages),
        "backward": sum(stage["backward"] for stage in stages),
        "update": sum(stage["update"] for stage in stages),
    }


def stage_copies(report: Any) -> list[float]:
    """Cycles in which every stage gets values from other IPUs."""
    clock = report.document["target"]["clock_hz"]
    return [stage["copies"] * clock for stage in report.document["stages"]]


def get_stash(report: Any, ipu_id: int = 0) -> tuple[int, int]:
    """Bytes that wait for a backward pass on one IPU: those that were fed, and those that layers made."""
    fed = made = 0
    for one in _memory(report, ipu_id)["contributors"]:
        size = one["bytes"].get(Category.STASH.value, 0)
        fed, made = (fed, made + size) if one["layer"] else (fed + size, made)
    return fed, made


def _memory(report: Any, ipu_id: int) -> Document:
    found = report.document["memory"]
    if not 0 <= ipu_id < len(found):
        raise ValueError(f"ipu_id must be one of the {len(found)} IPUs of the report. Received: ipu_id={ipu_id}.")
    return found[ipu_id]


def _operations(report: Any, name: str) -> Iterator[Document]:
    return (one for one in report.document["operations"] if _is_of(one["layer"], name))


def _is_of(layer: str, name: str) -> bool:
    return f"/{name}/" in f"/{layer}/"


def _own_code(report: Any, ipu_id: int, name: str | None = None) -> int:
    ipu_of = {stage["index"]: stage["ipu"] for stage in report.document["stages"]}
    return sum(
        one["code_bytes"]
        for one in report.document["operations"]
        if ipu_of[one["stage"]] == ipu_id and (name is None or _is_of(one["layer"], name))
    )


def _share_of_layer(report: Any, ipu_id: int, name: str, whole: int) -> int:
    check_report(report, name)
    own = _own_code(report, ipu_id)
    return round(whole * _own_code(report, ipu_id, name) / own) if own else 0
