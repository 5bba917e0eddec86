"""Profiles a model layer by layer, and divides the layers into stages so that the slowest is as fast as can be."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import pva
from openipu.program import stash_depth
from openipu.program.balance import divide
from openipu.tensorflow.addons.auto_pipeline import pva_utils
from openipu.tensorflow.addons.auto_pipeline.keras_utils import (
    get_assignment_layer_type,
    layer_of,
    node_of,
    tf_tensor_size,
)
from openipu.tensorflow.addons.auto_pipeline.profiler import ReportHelper, profile_layer
from openipu.tensorflow.addons.auto_pipeline.types import (
    AutoPipelineConfiguration,
    IPUClusterInfo,
    LayerInfo,
    ModelInfo,
    RangeInfo,
)
from openipu.tensorflow.addons.auto_pipeline.types_utils import (
    aggregate_info_inplace,
    copy_layer_info,
    get_empty_layer_info,
    get_empty_range_info,
    memory_of,
    pass_cycles,
    schedule_of,
    transfer_cycle,
)
from openipu.tensorflow.configuration import devices
from openipu.tensorflow.executor.strategy import current
from openipu.tensorflow.ipu.ipu_strategy import IPUStrategyV1
from openipu.tensorflow.keras.stages import alone, create
from openipu.tensorflow.keras.stages.assignment import FunctionalLayerPipelineStageAssignment
from openipu.tensorflow.keras.stages.auto import Row, row_of
from openipu.tensorflow.keras.stages.tracing import graph_of

Partition = Sequence[int]


class DoesNotFit(ValueError):
    """A model that no division brings into the memory of its IPUs."""


def parse_layer_profile(layer: Any, pva_pop: Any, autopipe_config: AutoPipelineConfiguration) -> LayerInfo:
    """What a layer takes, as its profile says.

    Args:
      layer: the assignment that was profiled, the layer, or its name.
      pva_pop: the profile: its path, or the report that `pva.openReport` made of it.
      autopipe_config: the configuration.
    """
    report = pva_pop if isinstance(pva_pop, pva.Report) else pva.openReport(pva_pop)
    info = get_empty_layer_info()
    assigned = layer_of(layer) if hasattr(layer, "is_nested_model") else layer
    info["name"] = assigned if isinstance(assigned, str) else assigned.name
    batch_size = report.document["program"]["micro_batch"] or 1
    info["cycles"] = pva_utils.get_single_ipu_cycles(report)
    memory = info["memory"]
    waiting = stash_depth(alone.PLAN.pipeline.schedule, alone.STAGES, 0)  # type: ignore[union-attr]
    fed, made = pva_utils.get_stash(report)
    memory["inputs"], memory["activations"] = fed // waiting, made // waiting
    if assigned is not layer:
        info["type"] = get_assignment_layer_type(layer, batch_size)
        memory["outputs"] = sum(
            tf_tensor_size(spec, batch_size) for spec in alone.results_of(node_of(layer), batch_size)
        )
    parameters = pva_utils.get_parameter_from_always_live(report)
    memory["parameters"] = {info["name"]: parameters} if parameters else {}
    own = pva_utils.get_vertex_code(report) + pva_utils.get_internal_exchange_code(report)
    memory["code"] = {"program": pva_utils.get_control_code(report), info["type"] or info["name"]: own}
    always = pva_utils.get_total_memory(report) - report.document["memory"][0]["categories"]["temporaries"]
    memory["temporary"] = max(0, pva_utils.get_max_live_memory(report) - always - memory["activations"])
    return info


def create_model_profile(
    create_model: Callable[..., Any], batch_size: int, autopipe_config: AutoPipelineConfiguration, ipu_cfg: Any = None
) -> ModelInfo:
    """Profile the layers of a model; those that are alike once.

    Args:
      create_model: makes the model, in the scope of a strategy; called with the batch size if it takes an argument.
      batch_size: the micro-batch.
      autopipe_config: the configuration.
      ipu_cfg: an `IPUConfig` whose options count; the active one by default. Nothing is configured by this.
    """
    strategy, helper = current() or IPUStrategyV1(), ReportHelper()
    with strategy.scope():
        model = called(create_model, batch_size)
        row = row_of(graph_of(model))
    config = devices.active_config() if ipu_cfg is None else ipu_cfg
    known: dict[str, LayerInfo] = {}
    layers: list[LayerInfo] = []
    for assignment in _assignments(row):
        kind = get_assignment_layer_type(assignment, batch_size)
        if kind not in known:
            profile = profile_layer(assignment, batch_size, strategy, helper, config)
            known[kind] = parse_layer_profile(assignment, profile, autopipe_config)
        layers.append(_renamed(known[kind], layer_of(assignment).name))
    ends = {group[-1] for group in row.groups}
    count = len(row.leaves)
    return {
        "name": model.name,
        "batch_size": batch_size,
        "layers": layers,
        "crossing": [row.crossing(position, batch_size) for position in range(1, count)],
        "joined": [position not in ends for position in range(count - 1)],
        "assignments": [row.of_all_layers([int(i == j) for j in range(count)]).count(1) for i in range(count)],
    }


def get_model_cost_matrix(model_profile: ModelInfo, mem_limit: float) -> np.ndarray:
    """Cycles of every range of layers for one micro-batch.

    Args:
      model_profile: the model.
      mem_limit: bytes that one micro-batch of a range may take.

    Returns:
      An array [layers + 1, layers + 1]: at [i, j] the layers i to j - 1, infinite where they do not fit, or where a
      cut would divide layers that share weights.
    """
    return _costs(model_profile, mem_limit, 0, 1, {})


def get_transfer_cost_matrix(model_profile: ModelInfo, cluster_info: IPUClusterInfo) -> np.ndarray:
    """Cycles of transfers, as `transfer_cycle` has them, for every IPU and range of layers: [IPUs, i, j]."""
    size = len(model_profile["layers"]) + 1
    found = np.full((cluster_info["n_ipu"], size, size), np.inf)
    for ipu, first, end in np.ndindex(*found.shape):
        if first < end:
            found[ipu, first, end] = transfer_cycle(cluster_info, ipu, model_profile, first, end)
    return found


def get_auto_pipeline_partition_by_cycle_and_transfer(
    model_profile: ModelInfo, cluster_info: IPUClusterInfo, config: AutoPipelineConfiguration
) -> list[int]:
    """Divide a model into as many stages as there are IPUs; the slowest is as fast as possible, and each one fits.

    Args:
      model_profile: the model.
      cluster_info: the IPUs.
      config: the configuration.

    Returns:
      The stage of every entry of `get_pipeline_stage_assignment`, nested models' in their place. Sequential models take
      it as it is; `assign` gives it to any model.
    """
    stages = cluster_info["n_ipu"]
    separable = model_profile["joined"].count(False) + 1
    if not 1 <= stages <= separable:
        raise ValueError(
            f"n_ipu must be between 1 and the number of layers that can be separated, {separable} in model "
            f"{model_profile['name']}. Received: n_ipu={stages}. Calls of a shared layer stay in one stage."
        )
    limit = cluster_info["memory"] * config.get("memory_proportion", 1.0)
    transfers = get_transfer_cost_matrix(model_profile, cluster_info)
    costs = [_costs(model_profile, limit, stage, stages, config) + transfers[stage] for stage in range(stages)]
    found = divide(costs)
    if found is None:
        raise DoesNotFit(
            f"Model {model_profile['name']} does not fit into {stages} IPUs, with {limit / 2**20:,.1f} MiB for each "
            f"stage and micro-batches of {model_profile['batch_size']}. Use more IPUs, a smaller batch_size, or a "
            "schedule in which fewer micro-batches wait ('sequential')."
        )
    counts = zip(found.assignment, model_profile["assignments"], strict=True)
    return [stage for stage, count in counts for _ in range(count)]


def assign(model: Any, partition: Partition) -> None:
    """Give the layers of a model their stages. This is openipu's own: the original has no such function.

    Args:
      model: made in the scope of an IPU strategy, and built.
      partition: of `get_auto_pipeline_partition_by_cycle_and_transfer`.
    """
    graph = graph_of(model)
    expected = sum(1 for _ in graph.leaves())
    if len(partition) != expected:
        raise ValueError(f"partition must have a stage for each of {expected} layers. Received: {len(partition)}.")
    model.set_pipeline_stage_assignment(create.from_stages(graph, list(partition)))


def ranges_of(model_profile: ModelInfo, partition: Partition) -> list[tuple[int, int]]:
    """The first layer of every stage, and the first behind it."""
    if len(partition) != sum(model_profile["assignments"]) or list(partition) != sorted(partition):
        raise ValueError(
            f"partition must have the stages of all {sum(model_profile['assignments'])} layers of model "
            f"{model_profile['name']}, in ascending order. Received: {list(partition)}."
        )
    stages, place = [], 0
    for count in model_profile["assignments"]:
        stages.append(partition[min(place, len(partition) - 1)])
        place += count
    return [(stages.index(stage), len(stages) - stages[::-1].index(stage)) for stage in sorted(set(stages))]


def range_of(model_profile: ModelInfo, first: int, end: int) -> RangeInfo:
    """What the layers from one to the one before another take together."""
    info = get_empty_range_info()
    for layer in model_profile["layers"][first:end]:
        aggregate_info_inplace(info, layer)
    return info


def called(create: Callable[..., Any], *arguments: Any) -> Any:
    """What a user's function makes; it is given as many of the arguments as it takes."""
    try:
        parameters = inspect.signature(create).parameters.values()
    except (TypeError, ValueError):
        return create()
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    wanted = [p for p in parameters if p.kind in plain and p.default is p.empty]
    return create(*arguments[: len(wanted)])


def _costs(
    model_profile: ModelInfo, limit: float, stage: int, stages: int, config: AutoPipelineConfiguration
) -> np.ndarray:
    schedule_of(config)
    layers, joined = model_profile["layers"], model_profile["joined"]
    found = np.full((len(layers) + 1, len(layers) + 1), np.inf)
    for first in range(len(layers)):
        if first and joined[first - 1]:
            continue
        info = get_empty_range_info()
        for end in range(first + 1, len(layers) + 1):
            aggregate_info_inplace(info, layers[end - 1])
            if memory_of(info, stage, stages, config) > limit:
                break
            if end == len(layers) or not joined[end - 1]:
                found[first, end] = pass_cycles(info, config)
    return found


def _assignments(row: Row) -> list[Any]:
    calls = [leaf.call for leaf in row.leaves if leaf.call is not None]
    return [FunctionalLayerPipelineStageAssignment(call.layer, call.node_index) for call in calls]


def _renamed(info: LayerInfo, name: str) -> LayerInfo:
    """A layer like the one that was profiled."""
    own = copy_layer_info(info)
    parameters = sum(own["memory"]["parameters"].values())
    own["memory"]["parameters"] = {name: parameters} if parameters else {}
    own["name"] = name
    return own
