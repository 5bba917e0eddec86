"""What PopTorch's options mean to an IPU: memory and time of what it computes, never the results."""

from collections.abc import Mapping
from typing import Any

from openipu.model import LAUNCH_LOW, Options, Partials, Recompute
from openipu.torch.options.options import Options as PopTorchOptions

# The backend joins gradients into buffers of this size before replicas exchange them.
_COLLECTIVE_BUFFER = 16 * 2**20


def options_of(options: PopTorchOptions) -> Options:
    """The options of the model that these stand for; marks in the module itself are not looked at."""
    popart = options._Popart.options
    locations = options.TensorLocations.toDict()
    activation, weight, state, accumulator = (
        locations.get(f"location_{kind}", {}) for kind in ("activation", "weight", "optimizer", "accumulator")
    )
    tiles = int(locations.get("numIOTiles", 0))
    partials = popart.get("partialsTypeMatMuls") or popart.get("convolutionOptions", {}).get("partialsType")
    proportions = options.available_memory_proportion
    return Options(
        partials=Partials.HALF if partials == "half" else Partials.FLOAT,
        stage_proportions=tuple(sorted((int(ipu), min(1.0, max(0.0, share))) for ipu, share in proportions.items())),
        recompute=_recompute(popart),
        offload_weights=_off_chip(weight),
        offload_optimizer_state=_off_chip(state),
        offload_accumulators=_off_chip(accumulator),
        offload_activations=_off_chip(activation),
        shard_weights=bool(weight.get("useReplicatedTensorSharding")),
        shard_optimizer_state=bool(state.get("useReplicatedTensorSharding")),
        stochastic_rounding=bool(popart.get("enableStochasticRounding")),
        io_tiles=tiles,
        overlap_host=tiles > 0,
        shared_stream=True,
        collective_buffer=_COLLECTIVE_BUFFER,
        launch_seconds=LAUNCH_LOW,
    )


def _off_chip(location: Mapping[str, Any]) -> bool:
    return location.get("onChip", 1) == 0


def _recompute(popart: Mapping[str, Any]) -> Recompute:
    wish = str(popart.get("autoRecomputation", "")).rpartition(".")[2]
    return Recompute.NONE if wish in ("", "0", "None") else Recompute.CHEAP
