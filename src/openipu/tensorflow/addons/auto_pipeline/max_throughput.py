"""Searches for the settings of a model with which a pipeline takes most samples in a second."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypedDict

from openipu.tensorflow.addons.auto_pipeline.partition import (
    DoesNotFit,
    create_model_profile,
    get_auto_pipeline_partition_by_cycle_and_transfer,
)
from openipu.tensorflow.addons.auto_pipeline.partition_evaluate import (
    estimate_pipelined_model_profile,
    profile_pipelined_model,
)
from openipu.tensorflow.addons.auto_pipeline.types import RangeInfo
from openipu.tensorflow.addons.auto_pipeline.types_utils import pass_cycles

_NEEDED = ("batch_size", "cluster_info")


class Found(TypedDict):
    """The best settings: what was chosen, what `create_args` made of it, the stages, and what they take.

    `cost` is that of `get_pipeline_cost`.
    """

    config: dict[str, Any]
    args: Any
    partition: list[int]
    profile: list[RangeInfo]
    cost: float


def get_pipeline_cost(pipeline_profile: Sequence[RangeInfo], batch_size: int) -> float:
    """Cycles per sample once all stages are busy: those of the slowest stage.

    Args:
      pipeline_profile: what every stage takes.
      batch_size: samples of a micro-batch.
    """
    return max(pass_cycles(stage) + stage["transfer"] for stage in pipeline_profile) / batch_size


def search_for_max_throughput(
    binary_search_configs: Mapping[str, Sequence[Any]],
    grid_search_configs: Mapping[str, Sequence[Any]],
    create_args: Callable[[dict[str, Any]], Mapping[str, Any]],
    create_model: Callable[[Any], Any],
    create_dataset: Callable[[Any], Any] | None = None,
) -> Found:
    """Find the settings with the least cost per sample, among those with which every stage fits into its IPU.

    Args:
      binary_search_configs: by name, values in ascending order of which larger ones need more memory and are better,
        such as batch sizes: the largest that fits is found by halving. Several are searched one after the other.
      grid_search_configs: by name, values all of which are tried, in all combinations.
      create_args: makes of one value for each name a dictionary with at least `batch_size` and `cluster_info`, and,
        where wanted, `autopipe_config` and `ipu_cfg`; the other functions are called with it.
      create_model: makes the model.
      create_dataset: makes the data to train with. If it is given, what was found is profiled as a whole program, so
        the model must be compiled; otherwise it is added up from its layers.
    """
    best: Found | None = None
    for grid in _combinations(grid_search_configs):
        found = _largest(binary_search_configs, grid, create_args, create_model, create_dataset)
        if found is not None and (best is None or found["cost"] < best["cost"]):
            best = found
    if best is None:
        raise ValueError(
            "With none of the settings the model fits into the IPUs. Give more IPUs in `cluster_info`, or smaller "
            f"values to search. Received: {dict(binary_search_configs)} and {dict(grid_search_configs)}."
        )
    return best


def _largest(
    searched: Mapping[str, Sequence[Any]],
    grid: dict[str, Any],
    create_args: Callable[[dict[str, Any]], Mapping[str, Any]],
    create_model: Callable[[Any], Any],
    create_dataset: Callable[[Any], Any] | None,
) -> Found | None:
    """The largest values that fit, with the smallest of those that are searched later."""
    chosen = {**grid, **{name: values[0] for name, values in searched.items()}}
    best = _tried(chosen, create_args, create_model, create_dataset)
    if best is None:
        return None
    for name, values in searched.items():
        low, high = 0, len(values)
        while high - low > 1:
            middle = (low + high) // 2
            found = _tried({**chosen, name: values[middle]}, create_args, create_model, create_dataset)
            low, high = (low, middle) if found is None else (middle, high)
            best = best if found is None else found
        chosen[name] = values[low]
    return best


def _tried(
    config: dict[str, Any],
    create_args: Callable[[dict[str, Any]], Mapping[str, Any]],
    create_model: Callable[[Any], Any],
    create_dataset: Callable[[Any], Any] | None,
) -> Found | None:
    args = create_args(dict(config))
    missing = [name for name in _NEEDED if name not in args]
    if missing:
        raise ValueError(f"create_args must make a dictionary with {', '.join(_NEEDED)}. Received: no {missing[0]}.")
    size, cluster, wish = args["batch_size"], args["cluster_info"], args.get("autopipe_config", {})
    profile = create_model_profile(lambda: create_model(args), size, wish, args.get("ipu_cfg"))
    try:
        partition = get_auto_pipeline_partition_by_cycle_and_transfer(profile, cluster, wish)
    except DoesNotFit:
        return None
    if create_dataset is None:
        stages = estimate_pipelined_model_profile(profile, cluster, partition, wish)
    else:
        stages = profile_pipelined_model(
            lambda: create_model(args), lambda: create_dataset(args), size, partition, args.get("ipu_cfg")
        )
        if any(stage["memory"]["total"] > cluster["memory"] * wish.get("memory_proportion", 1.0) for stage in stages):
            return None
    return {
        "config": dict(config),
        "args": args,
        "partition": partition,
        "profile": stages,
        "cost": get_pipeline_cost(stages, size),
    }


def _combinations(configs: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*configs.values()):
        yield dict(zip(configs, values, strict=True))
