"""Which plans are worth a prediction: stages, replicas, micro-batch and accumulation for so many IPUs."""

from collections.abc import Iterator, Sequence

import attrs

from openipu.program import Pipeline, Plan, Schedule
from openipu.program.schedule import count_multiple

# Micro-batches of an update for each stage: with so many the bubble is small.
_DEEP = 8


@attrs.frozen
class Candidate:
    """One way to spread a program.

    Attributes:
      ipus: of all replicas.
      stages: pipeline stages, one for each IPU of a replica.
      replicas: copies of the model.
      micro_batch: samples of one step of one replica.
      accumulation: micro-batches of a weight update.
    """

    ipus: int
    stages: int
    replicas: int
    micro_batch: int
    accumulation: int

    @property
    def batch(self) -> int:
        """Samples of a weight update."""
        return self.micro_batch * self.replicas * self.accumulation

    def plan(self, written: Plan) -> Plan:
        """The plan, with what else the program says."""
        updates = max(1, round(written.device_iterations / self.accumulation))
        return attrs.evolve(
            written,
            device_iterations=updates * self.accumulation,
            replicas=self.replicas,
            gradient_accumulation=self.accumulation,
            pipeline=self._pipeline(written.pipeline),
        )

    def _pipeline(self, written: Pipeline | None) -> Pipeline | None:
        if self.stages == 1:
            return None
        mapping = tuple(range(self.stages))
        if written is None:
            return Pipeline(self.stages, Schedule.GROUPED, mapping)
        return Pipeline(self.stages, written.schedule, mapping, written.recompute)


def candidates(
    ipus: Sequence[int], micro_batches: Sequence[int], written: Plan, most_stages: int
) -> Iterator[Candidate]:
    """The candidates for each number of IPUs.

    Args:
      ipus: numbers of IPUs.
      micro_batches: sizes of micro-batches.
      written: the plan of the program as it is.
      most_stages: how many layers there are to cut between.
    """
    schedule = written.pipeline.schedule if written.pipeline is not None else Schedule.GROUPED
    for count in ipus:
        for stages in _divisors(count):
            if stages > most_stages:
                continue
            multiple = count_multiple(schedule, stages, True) if stages > 1 else 1
            least = -(-written.gradient_accumulation // multiple) * multiple
            deep = -(-_DEEP * stages // multiple) * multiple
            # Without a pipeline nothing is gained by more accumulation than the program asks for.
            depths = {least} if stages == 1 else {least, max(least, deep)}
            for micro in micro_batches:
                for accumulation in sorted(depths):
                    yield Candidate(count, stages, count // stages, micro, accumulation)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
