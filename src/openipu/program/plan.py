"""How often a program runs and how it is spread: iterations, replicas, accumulation, outputs."""

import enum

import attrs
from attrs.validators import ge, instance_of, optional

from openipu.program.replica import Layout, Spread
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
      recompute: whether activations are computed again for the backward pass rather than kept. It decides what an
        IPU would need, not what is computed: plans that differ in it have the same executable.
    """

    stages: int = _positive(2)
    schedule: Schedule = attrs.field(default=Schedule.GROUPED, validator=instance_of(Schedule))
    device_mapping: tuple[int, ...] = attrs.field(default=())
    recompute: bool = attrs.field(default=False, eq=False, repr=False)

    @property
    def shards(self) -> int:
        """IPUs of one replica."""
        return max(self.device_mapping, default=self.stages - 1) + 1


@attrs.frozen
class Plan:
    """How a program is spread over steps and replicas.

    Attributes:
      device_iterations: steps every replica takes in one execution.
      replicas: copies of the model in this process, each with its own micro-batch.
      gradient_accumulation: steps between two weight updates.
      accumulation_reduction: how the gradients of those steps become one.
      replica_reduction: how the gradients of the replicas become one.
      pipeline: how the stages of a model cut into stages run; None for a model in one piece.
      outputs: which steps' outputs come back.
      stochastic_rounding: whether casts to float16 and bfloat16 go up or down at random rather than to the nearest.
      instances: processes that run the program together, each with as many replicas.
    """

    device_iterations: int = _positive(1)
    replicas: int = _positive(1)
    gradient_accumulation: int = _positive(1)
    accumulation_reduction: Reduction = attrs.field(default=Reduction.SUM, validator=instance_of(Reduction))
    replica_reduction: Reduction = attrs.field(default=Reduction.SUM, validator=instance_of(Reduction))
    pipeline: Pipeline | None = attrs.field(default=None, validator=optional(instance_of(Pipeline)))
    outputs: OutputMode = attrs.field(default=OutputMode.ALL, validator=instance_of(OutputMode))
    stochastic_rounding: bool = attrs.field(default=False, validator=instance_of(bool))
    instances: int = _positive(1)

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
    def layout(self) -> Layout:
        """How the values of this process' replicas are laid out."""
        return Layout(self.replicas, shared=self.instances > 1)

    @property
    def everyone(self) -> Layout:
        """How the values of all processes' replicas are laid out."""
        return Layout(self.all_replicas, shared=self.instances > 1)

    def over(self, devices: int) -> Spread:
        """How the replicas of all processes are spread over so many JAX devices of each."""
        return Spread(self.replicas // devices, devices * self.instances, self.instances)

    @property
    def all_replicas(self) -> int:
        """Copies of the model in all processes."""
        return self.replicas * self.instances

    @property
    def updates(self) -> int:
        """Weight updates in one execution."""
        return self.device_iterations // self.gradient_accumulation
