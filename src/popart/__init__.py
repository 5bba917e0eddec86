"""The enumerations of PopART that PyTorch programs write into `opts._Popart`; there is no PopART here."""

import enum


class AccumulateOuterFragmentSchedule(enum.IntEnum):
    """When the accumulated gradients are used."""

    OverlapMemoryOptimized = 3


class SyntheticDataMode(enum.IntEnum):
    """What stands in for data that is not transferred."""

    RandomNormal = 2


class SubgraphCopyingStrategy(enum.IntEnum):
    """When inputs are copied into a subgraph."""

    JustInTime = 1


class RecomputationType(enum.IntEnum):
    """Which activations are computed again."""

    Standard = 1
    Pipeline = 3
    RecomputeAll = 4


class VirtualGraphMode(enum.IntEnum):
    """How operations get their IPU."""

    Manual = 1


class BatchSerializationBatchSchedule(enum.IntEnum):
    """The order of serialised batches."""

    Isomorphic = 1


__all__ = [
    "AccumulateOuterFragmentSchedule",
    "BatchSerializationBatchSchedule",
    "RecomputationType",
    "SubgraphCopyingStrategy",
    "SyntheticDataMode",
    "VirtualGraphMode",
]


def __getattr__(name: str) -> None:
    raise AttributeError(
        f"module 'popart' has no attribute {name!r}: openipu has no PopART, only the enumerations that programs write "
        f"into opts._Popart: {', '.join(__all__)}."
    )
