"""Adds layers up to ranges, says what transfers cost, and compares profiles."""

import copy
from collections.abc import Sequence
from typing import Any

from openipu import hardware
from openipu.model import stage_copy
from openipu.program import Schedule, stash_depth
from openipu.tensorflow.addons.auto_pipeline.types import (
    AutoPipelineConfiguration,
    ConnectionInfo,
    CycleInfo,
    IPUClusterInfo,
    LayerInfo,
    ModelInfo,
    RangeInfo,
)


def get_empty_layer_info() -> LayerInfo:
    """A layer that takes nothing."""
    memory = {"parameters": {}, "code": {}, "inputs": 0, "activations": 0, "outputs": 0, "temporary": 0}
    return {"name": "", "type": "", "cycles": _no_cycles(), "memory": memory}  # type: ignore[typeddict-item]


def get_empty_range_info() -> RangeInfo:
    """A range without layers."""
    memory: Any = {**get_empty_layer_info()["memory"], "total": 0, "last": 0}
    return {"layers": [], "cycles": _no_cycles(), "transfer": 0.0, "memory": memory}


def copy_layer_info(info: LayerInfo) -> LayerInfo:
    """A copy that shares nothing."""
    return copy.deepcopy(info)


def aggregate_info_inplace(range_info: RangeInfo, layer_info: LayerInfo) -> None:
    """Make a range one layer longer.

    Args:
      range_info: the range, which is changed.
      layer_info: the layer that follows it.
    """
    for kind, cycles in layer_info["cycles"].items():
        range_info["cycles"][kind] += cycles
    total, own = range_info["memory"], layer_info["memory"]
    total["parameters"] |= own["parameters"]
    total["code"] |= own["code"]
    if range_info["layers"]:
        total["activations"] += own["inputs"] - _kept_twice(range_info, layer_info)
    else:
        total["inputs"] = own["inputs"]
    total["activations"] += own["activations"]
    total["last"], total["outputs"] = own["activations"], own["outputs"]
    total["temporary"] = max(total["temporary"], own["temporary"])
    range_info["layers"].append(layer_info["name"])


def transfer_cycle(
    cluster_info: IPUClusterInfo, ipu_id: int, model_profile: ModelInfo, range_start: int, range_end: int
) -> float:
    """Cycles in which an IPU gets activations from the one before it, and gradients from the one after it.

    Args:
      cluster_info: the IPUs.
      ipu_id: which of them.
      model_profile: the model.
      range_start, range_end: the first of its layers on the IPU, and the first behind them.
    """
    crossing, ways = model_profile["crossing"], cluster_info["connections"]
    cycles = 0.0
    if range_start > 0 and ipu_id > 0:
        cycles += _over(ways[ipu_id - 1], crossing[range_start - 1])
    if range_end < len(model_profile["layers"]) and ipu_id < len(ways):
        cycles += _over(ways[ipu_id], crossing[range_end - 1])
    return cycles


def compare_pipelined_model_profile(
    estimated_profile: Sequence[RangeInfo], actual_profile: Sequence[RangeInfo]
) -> list[dict[str, float]]:
    """By how much an estimate is off, stage by stage: 0.1 says that it is a tenth too high.

    Args:
      estimated_profile: of `estimate_pipelined_model_profile`.
      actual_profile: of `profile_pipelined_model` or `parse_pipelined_model_profile`.
    """
    if len(estimated_profile) != len(actual_profile):
        raise ValueError(
            "Both profiles must have the same number of stages. "
            f"Received: {len(estimated_profile)} and {len(actual_profile)}."
        )
    return [
        {
            "cycles": _excess(pass_cycles(estimated), pass_cycles(actual)),
            "transfer": _excess(estimated["transfer"], actual["transfer"]),
            "memory": _excess(estimated["memory"]["total"], actual["memory"]["total"]),
        }
        for estimated, actual in zip(estimated_profile, actual_profile, strict=True)
    ]


def pass_cycles(info: RangeInfo | LayerInfo, config: AutoPipelineConfiguration | None = None) -> float:
    """Cycles of one micro-batch: both passes, and its share of the update where the configuration says one."""
    cycles, count = info["cycles"], (config or {}).get("gradient_accumulation_count")
    return cycles["forward"] + cycles["backward"] + (cycles["update"] / count if count else 0.0)


def memory_of(info: RangeInfo, stage: int, stages: int, config: AutoPipelineConfiguration) -> int:
    """Bytes of a range as a stage of a pipeline.

    Args:
      info: the range.
      stage, stages: which stage it is, of how many.
      config: the schedule.
    """
    memory = info["memory"]
    waiting = stash_depth(schedule_of(config), stages, stage)
    always = sum(memory["parameters"].values()) + sum(memory["code"].values())
    # Those that wait, and of the micro-batch that is worked on what the stage makes itself.
    kept = memory["activations"] * (waiting + 1) + memory["inputs"] * waiting
    return always + kept + memory["temporary"]


def schedule_of(config: AutoPipelineConfiguration) -> Schedule:
    """The schedule that a configuration names."""
    given = config.get("schedule", Schedule.GROUPED.value)
    name = str(getattr(given, "name", given)).lower()
    if name not in {schedule.value for schedule in Schedule}:
        known = ", ".join(repr(schedule.value) for schedule in Schedule)
        raise ValueError(f"schedule must be one of {known}. Received: schedule={given!r}.")
    return Schedule(name)


def cluster_of(n_ipu: int) -> IPUClusterInfo:
    """So many IPUs of the virtual system in a row. This is openipu's own: the original has no such function."""
    target = hardware.current_system().target
    way: ConnectionInfo = {"bandwidth": 1 / (stage_copy(1) * target.clock_hz), "latency": 0.0}
    return {"n_ipu": n_ipu, "memory": target.memory, "connections": [copy.copy(way) for _ in range(n_ipu - 1)]}


def _no_cycles() -> CycleInfo:
    return {"forward": 0.0, "backward": 0.0, "update": 0.0}


def _kept_twice(range_info: RangeInfo, layer_info: LayerInfo) -> int:
    """What of a layer's inputs waits for the backward pass of the layer before it anyway."""
    memory = range_info["memory"]
    known = memory["last"] >= memory["outputs"]
    return min(layer_info["memory"]["inputs"], memory["outputs"]) if known else 0


def _over(way: ConnectionInfo, size: int) -> float:
    return way["latency"] + size / way["bandwidth"] if size else 0.0


def _excess(estimated: float, actual: float) -> float:
    return estimated / actual - 1 if actual else float(estimated > 0)
