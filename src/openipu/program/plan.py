"""How often a program runs and how it is spread: iterations, replicas, accumulation, outputs."""

import enum

import attrs
from attrs.validators import ge, instance_of, optional

from openipu.program.schedule import Schedule


class Reduction(enum.Enum):
    """How gradients of several micro-batches become one."""

    SUM = "sum"
    MEAN = "mean"
    RUNNING_MEAN = "running_mean"


class OutputMode(enum.Enum):
    """Which of the outputs of the steps of one execution come back to the host."""

    ALL = "all"
    FINAL = "final"


def _positive(default: int) -> int:
    return attrs.field(default=default, validator=[instance_of(int), ge(1)])


@attrs.frozen
class Pipeline:
    """How a model cut into stages runs over the IPUs of one replica.

    Attributes:
      stages: number of stages.
      schedule: the order in which stages take micro-batches.
      device_mapping: the IPU of every stage.
      recompute: whether activations are computed again for the backward pass rather than kept.
    """

    stages: int = _positive(2)
    schedule: Schedule = attrs.field(default=Schedule.GROUPED, validator=instance_of(Schedule))
    device_mapping: tuple[int, ...] = attrs.field(default=())
    recompute: bool = False

    @property
    def shards(self) -> int:
        """IPUs of one replica."""
        return max(self.device_mapping, default=self.stages - 1) + 1


@attrs.frozen
class Plan:
    """How a program is spread over steps and replicas.

    Attributes:
      device_iterations: steps every replica takes in one execution.
      replicas: copies of the model, each with its own micro-batch.
      gradient_accumulation: steps between two weight updates.
      accumulation_reduction: how the gradients of those steps become one.
      replica_reduction: how the gradients of the replicas become one.
      accumulation_dtypes: the dtype of each gradient accumulator; None keeps the gradient's own.
      pipeline: how the stages of a model cut into stages run; None for a model in one piece.
      outputs: which steps' outputs come back.
    """

    device_iterations: int = _positive(1)
    replicas: int = _positive(1)
    gradient_accumulation: int = _positive(1)
    accumulation_reduction: Reduction = attrs.field(default=Reduction.SUM, validator=instance_of(Reduction))
    replica_reduction: Reduction = attrs.field(default=Reduction.SUM, validator=instance_of(Reduction))
    accumulation_dtypes: tuple[str | None, ...] | None = None
    pipeline: Pipeline | None = attrs.field(default=None, validator=optional(instance_of(Pipeline)))
    outputs: OutputMode = attrs.field(default=OutputMode.ALL, validator=instance_of(OutputMode))

    def __attrs_post_init__(self) -> None:
        if self.device_iterations % self.gradient_accumulation:
            lower = self.device_iterations // self.gradient_accumulation * self.gradient_accumulation
            near = [str(n) for n in (lower, lower + self.gradient_accumulation) if n]
            raise ValueError(
                "device_iterations must be a multiple of gradient_accumulation. "
                f"Received: device_iterations={self.device_iterations}, "
                f"gradient_accumulation={self.gradient_accumulation}. Use {' or '.join(near)}."
            )

    @property
    def updates(self) -> int:
        """Weight updates in one execution."""
        return self.device_iterations // self.gradient_accumulation
