"""What a configuration means to an IPU: memory and time of what it computes, never the results."""

from collections.abc import Mapping
from typing import Any

import attrs

from openipu.model import Options, Partials, Recompute

# Keyword arguments of pipelines and of gradient accumulation, by the option of the model they set.
_KEYWORDS = {
    "offload_weight_update_variables": "offload_optimizer_state",
    "offload_activations": "offload_activations",
    "offload_gradient_accumulation_buffers": "offload_accumulators",
    "offload_weights": "offload_weights",
    "replicated_optimizer_state_sharding": "shard_optimizer_state",
    "replicated_weight_sharding": "shard_weights",
}


def options_of(config: Any, pipelined: bool = False) -> Options:
    """The options of the model that an `IPUConfig` stands for.

    Args:
      config: the active one; None for none.
      pipelined: recomputation then starts from the inputs of stages; else only what is cheap is computed again.
    """
    if config is None:
        return Options()
    matmuls, convolutions = config.matmuls.poplar_options, config.convolutions.poplar_options
    partials = convolutions.get("partialsType", matmuls.get("partialsType", "float"))
    recompute = Recompute.STAGE if pipelined else Recompute.CHEAP
    return Options(
        partials=Partials.HALF if partials == "half" else Partials.FLOAT,
        matmul_proportion=_proportion(matmuls),
        convolution_proportion=_proportion(convolutions),
        recompute=recompute if config.allow_recompute else Recompute.NONE,
        stochastic_rounding=getattr(config.floating_point_behaviour.esr, "name", "OFF") != "OFF",
        io_tiles=config.io_tiles.num_io_tiles,
        overlap_host=config.io_tiles.num_io_tiles > 0,
        collective_buffer=config.optimizations.maximum_cross_replica_sum_buffer_size,
    )


def with_keywords(options: Options, keywords: Mapping[str, Any], feed: Mapping[str, Any]) -> Options:
    """The same with what a pipeline, gradient accumulation or a feed was told.

    Args:
      options: of the configuration.
      keywords: of the pipeline or of gradient accumulation.
      feed: of the feed to the device.
    """
    changes: dict[str, Any] = {
        ours: bool(keywords[theirs]) for theirs, ours in _KEYWORDS.items() if keywords.get(theirs) is not None
    }
    if keywords.get("recomputation_mode") is not None and options.recompute is Recompute.NONE:
        changes["recompute"] = Recompute.STAGE
    if feed.get("prefetch_depth"):
        changes["prefetch_depth"] = int(feed["prefetch_depth"])
    return attrs.evolve(options, **changes)


def _proportion(poplar_options: Mapping[str, str]) -> float:
    try:
        given = float(poplar_options.get("availableMemoryProportion", "0.6"))
    except ValueError:
        return 0.6
    return min(1.0, max(0.0, given))
