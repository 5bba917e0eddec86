"""What the `set_*` methods of models accept and refuse."""

import enum
from typing import Any, TypeVar

from openipu.program import Reduction

_AUTOMATIC = "This argument is automatically set by Keras."
_INCOMPATIBLE = "This argument is not compatible with Keras."
_REMOVED = "This argument has now been removed, use `gradient_accumulation_reduction_method` instead."
_INFEED = {"dataset": _AUTOMATIC, "infeed_spec": _AUTOMATIC, "element_spec": _AUTOMATIC}
_OUTFEED = {"outfeed_mode": _INCOMPATIBLE, "device_ordinal": _INCOMPATIBLE}
_PIPELINE_INSTEAD = {
    "gradient_accumulation_count": "gradient_accumulation_steps_per_replica",
    "device_mapping": "device_mapping",
    "accumulate_outfeed": "accumulate_outfeed",
}
_PIPELINE_AUTOMATIC = (
    "computational_stages", "repeat_count", "inputs", "infeed_queue", "outfeed_queue", "optimizer_function",
)  # fmt: skip
_PIPELINE_INCOMPATIBLE = ("outfeed_loss", "outfeed_mask", "batch_serialization_iterations")
_PIPELINE_KNOWN = (
    "gradient_accumulation_dtype", "gradient_accumulation_for_captured_grads", "pipeline_schedule",
    "recomputation_mode", "forward_propagation_stages_poplar_options", "backward_propagation_stages_poplar_options",
    "weight_update_poplar_options", "offload_weight_update_variables", "replicated_optimizer_state_sharding",
    "offload_activations", "offload_gradient_accumulation_buffers", "replicated_weight_sharding", "offload_weights",
    "continuous_weight_updates", "accumulate_outfeed_dtype", "reduction_method", "name",
)  # fmt: skip
_ACCUMULATION_KNOWN = ("offload_weight_update_variables", "replicated_optimizer_state_sharding", "dtype", "name")

E = TypeVar("E", bound=enum.Enum)


def parse(kind: type[E], value: Any) -> E:
    """A member of an enumeration from itself, a member of the same name, or its name in any case."""
    name = value.name if isinstance(value, enum.Enum) else value
    if isinstance(name, str) and name.upper() in kind.__members__:
        return kind[name.upper()]
    raise ValueError(
        f"Cannot parse {value!r} as one of {kind.__name__}. Valid values are: {', '.join(kind.__members__)}."
    )


def parse_reduction(value: Any) -> Reduction:
    """How gradients are accumulated."""
    return parse(Reduction, value)


def check_accumulation_steps(steps: Any) -> None:
    """Steps must be a positive integer or None."""
    if steps is not None and (type(steps) is not int or steps < 1):
        raise ValueError(
            f"Expected `gradient_accumulation_steps_per_replica` to be a positive integer, but got {steps} instead."
        )


def check_accumulation_kwargs(kwargs: dict[str, Any]) -> None:
    """Keyword arguments that go to the accumulating optimizer."""
    where = "gradient_accumulation_optimizer_kwargs"
    instead = (
        "Set the `gradient_accumulation_steps_per_replica` argument to `set_gradient_accumulation_options` instead."
    )
    _refuse_removed(kwargs, where)
    _refuse(kwargs, where, {"opt": "The optimizer is the one given to `compile`.", "num_mini_batches": instead})
    _only_known(kwargs, _ACCUMULATION_KNOWN, "set_gradient_accumulation_options")


def check_device_mapping(mapping: Any) -> None:
    """A mapping must be a list of integers or None."""
    if mapping is not None and not (isinstance(mapping, list) and all(type(i) is int for i in mapping)):
        raise ValueError("Expected `device_mapping` to be a list of integers.")


def check_pipelining_kwargs(kwargs: dict[str, Any]) -> None:
    """Keyword arguments that go to the pipeline."""
    where = "pipelining_kwargs"
    _refuse_removed(kwargs, where)
    to = "argument to `set_pipelining_options` instead."
    _refuse(kwargs, where, {key: f"Set the `{name}` {to}" for key, name in _PIPELINE_INSTEAD.items()})
    _refuse(kwargs, where, dict.fromkeys(_PIPELINE_AUTOMATIC, _AUTOMATIC))
    _refuse(kwargs, where, dict.fromkeys(_PIPELINE_INCOMPATIBLE, _INCOMPATIBLE))
    _only_known(kwargs, _PIPELINE_KNOWN, "set_pipelining_options")
    if kwargs.get("continuous_weight_updates"):
        raise NotImplementedError("Continuous weight updates are currently not supported.")


def check_infeed(kwargs: dict[str, Any]) -> None:
    """Keyword arguments of the feed to the device."""
    _refuse(kwargs, "kwargs", _INFEED)
    depth = kwargs.get("prefetch_depth")
    if depth is not None and depth < 1:
        raise ValueError(f"prefetch_depth must be greater than zero, but it is {depth}")
    if depth is not None and depth > 255:
        raise ValueError(f"prefetch_depth must be less than 256, but it is {depth}")
    _only_known(kwargs, ("prefetch_depth", "optimise_latency", "device_ordinal"), "set_infeed_queue_options")


def check_outfeed(kwargs: dict[str, Any]) -> None:
    """Keyword arguments of the feed from the device."""
    _refuse(kwargs, "kwargs", _OUTFEED)
    if kwargs.get("buffer_depth", 1) < 1:
        raise ValueError("Outfeed buffer depth cannot be less than 1")
    _only_known(kwargs, ("buffer_depth", "optimise_latency"), "set_outfeed_queue_options")


def _refuse(kwargs: dict[str, Any], where: str, refused: dict[str, str]) -> None:
    for key in kwargs:
        if key in refused:
            raise ValueError(f"Found `{key}` key in `{where}`. {refused[key]}")


def _refuse_removed(kwargs: dict[str, Any], where: str) -> None:
    if "experimental_normalize_gradients" in kwargs:
        raise ValueError(f"Found `experimental_normalize_gradients` argument in `{where}`. {_REMOVED}")


def _only_known(kwargs: dict[str, Any], known: tuple[str, ...], method: str) -> None:
    for key in kwargs:
        if key not in known:
            raise TypeError(f"{method} got an unexpected argument {key!r}. Valid arguments: {', '.join(known)}.")
