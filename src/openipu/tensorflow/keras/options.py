"""What a model in scope remembers: its IPU options and the programs compiled for it."""

from types import ModuleType
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from openipu.tensorflow.strategy import IPUStrategyV1

_AUTOMATIC = "This argument is automatically set by Keras."
_INCOMPATIBLE = "This argument is not compatible with Keras."
_INFEED = {"dataset": _AUTOMATIC, "infeed_spec": _AUTOMATIC, "element_spec": _AUTOMATIC}
_OUTFEED = {"outfeed_mode": _INCOMPATIBLE, "device_ordinal": _INCOMPATIBLE}


@attrs.define
class Options:
    """The options set by the `set_*` methods of a model."""

    asynchronous_callbacks: bool = False
    infeed: dict[str, Any] = attrs.Factory(dict)
    outfeed: dict[str, Any] = attrs.Factory(dict)

    def set_infeed(self, kwargs: dict[str, Any]) -> None:
        """Replace the options of the feed to the device."""
        refuse_keys(kwargs, "kwargs", _INFEED)
        depth = kwargs.get("prefetch_depth")
        if depth is not None and depth < 1:
            raise ValueError(f"prefetch_depth must be greater than zero, but it is {depth}")
        if depth is not None and depth > 255:
            raise ValueError(f"prefetch_depth must be less than 256, but it is {depth}")
        _only_known(kwargs, ("prefetch_depth", "optimise_latency", "device_ordinal"), "set_infeed_queue_options")
        self.infeed = dict(kwargs)

    def set_outfeed(self, kwargs: dict[str, Any]) -> None:
        """Replace the options of the feed from the device."""
        refuse_keys(kwargs, "kwargs", _OUTFEED)
        if kwargs.get("buffer_depth", 1) < 1:
            raise ValueError("Outfeed buffer depth cannot be less than 1")
        _only_known(kwargs, ("buffer_depth", "optimise_latency"), "set_outfeed_queue_options")
        self.outfeed = dict(kwargs)


@attrs.define(eq=False)
class State:
    """Everything openipu keeps about one model."""

    keras: ModuleType
    strategy: "IPUStrategyV1"
    options: Options
    compiled: dict[tuple, Any] = attrs.Factory(dict)

    def forget(self) -> None:
        """Forget compiled programs: something they were compiled for has changed."""
        self.compiled.clear()


def refuse_keys(kwargs: dict[str, Any], where: str, refused: dict[str, str]) -> None:
    """Refuse the keys that may not be given here, each with its reason."""
    for key in kwargs:
        if key in refused:
            raise ValueError(f"Found `{key}` key in `{where}`. {refused[key]}")


def _only_known(kwargs: dict[str, Any], known: tuple[str, ...], method: str) -> None:
    for key in kwargs:
        if key not in known:
            raise TypeError(f"{method} got an unexpected argument {key!r}. Valid arguments: {', '.join(known)}.")
