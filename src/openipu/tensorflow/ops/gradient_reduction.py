"""How the gradients of several micro-batches become one."""

import enum
from typing import Any


class GradientAccumulationReductionMethod(enum.Enum):
    """The sum, the mean of gradients scaled before they are added, or the mean of those seen so far."""

    SUM = 0
    MEAN = 1
    RUNNING_MEAN = 2

    @classmethod
    def parse(cls, reduction_method: Any) -> "GradientAccumulationReductionMethod":
        """A member, or its name in any case."""
        if isinstance(reduction_method, cls):
            return reduction_method
        if isinstance(reduction_method, str) and reduction_method.upper() in cls.__members__:
            return cls[reduction_method.upper()]
        raise ValueError(
            f"reduction_method must be one of {', '.join(cls.__members__)}, as a member of "
            f"GradientAccumulationReductionMethod or its name. Received: reduction_method={reduction_method!r}."
        )
