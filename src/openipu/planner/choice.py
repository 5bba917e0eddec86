"""Predicts candidates and chooses among them."""

from collections.abc import Callable, Sequence

import attrs

from openipu import model
from openipu.hardware import Target
from openipu.model import Estimate, Options, Traced
from openipu.model.rescaling.rescale import rescaled
from openipu.planner.candidates import Candidate, candidates
from openipu.planner.layers import Layers, layers_of, names_of
from openipu.planner.staging import staged
from openipu.program import Plan, Program

# A prediction is not better than this: within it, the simpler plan is recommended.
_CLOSE = 0.97


@attrs.frozen(eq=False)
class Choice:
    """A candidate and what is predicted for it.

    Attributes:
      candidate: the way to spread the program.
      throughput: samples per second.
      step_seconds: of one step.
      worst_tile: bytes of the fullest tile.
      tile: bytes a tile has.
      memory: bytes of the fullest IPU.
      balance: mean over maximum of the stages' times.
      bubble: share of the time in which IPUs of a pipeline wait.
      fits: whether no tile overflows.
      starts: the first layer of every stage.
    """

    candidate: Candidate
    throughput: float
    step_seconds: float
    worst_tile: int
    tile: int
    memory: int
    balance: float
    bubble: float
    fits: bool
    starts: tuple[str, ...]


@attrs.frozen(eq=False)
class Answer:
    """What the planner found.

    Attributes:
      program: the program's name.
      target: the kind of IPU.
      written: the program as it is.
      choices: all plans, in the order of candidates.
      recommended: the best one, by its position; None when none fits.
    """

    program: str
    target: str
    written: Choice
    choices: tuple[Choice, ...]
    recommended: int | None


def choose(
    program: Program,
    written: Plan,
    target: Target,
    options: Options,
    ipus: Sequence[int],
    factors: Sequence[float] = (1.0,),
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> Answer:
    """Predicts plans for a program and recommends one.

    Args:
      program: the program.
      written: its plan as the script has it.
      target: the kind of IPU.
      options: what else was asked of it.
      ipus: numbers of IPUs.
      factors: micro-batches to try, in multiples of the program's.
      progress: called with how many plans are done, of how many.
    """
    traced = model.trace(program, written)
    as_written = model.estimate(program, written, target, options, traced)
    if as_written.micro_batch is None:
        raise ValueError(f"The inputs of {program.name} do not say what a sample is, so there is nothing to plan by.")
    whole = staged(traced, dict.fromkeys(names_of(traced), 0), 1)
    base = model.estimate(program, attrs.evolve(written, pipeline=None), target, options, whole)
    layers = layers_of(traced, base)
    sizes = {round(as_written.micro_batch * f): f for f in factors if as_written.micro_batch * f >= 1}
    found = list(candidates(ipus, sorted(sizes), written, max(1, len(layers.names))))
    prepared: dict[tuple[int, float], Traced] = {}
    choices = []
    for number, candidate in enumerate(found):
        key = (candidate.stages, sizes[candidate.micro_batch])
        if key not in prepared:
            prepared[key] = _prepared(traced, layers, *key)
        estimate = model.estimate(prepared[key].program, candidate.plan(written), target, options, prepared[key])
        choices.append(_choice(candidate, estimate, _starts(layers, candidate.stages)))
        progress(number + 1, len(found))
    shown = Candidate(
        as_written.ipus,
        len(as_written.stages),
        written.replicas,
        as_written.micro_batch,
        written.gradient_accumulation,
    )
    starts = tuple(stage.layers[0] if stage.layers else "" for stage in as_written.stages)
    return Answer(program.name, target.name, _choice(shown, as_written, starts), tuple(choices), recommended(choices))


def recommended(choices: Sequence[Choice]) -> int | None:
    """The fastest plan that fits; of those about as fast, the one with fewest IPUs, stages, and the smallest batch."""
    fitting = [number for number, choice in enumerate(choices) if choice.fits]
    if not fitting:
        return None
    fastest = max(choices[number].throughput for number in fitting)
    near = [number for number in fitting if choices[number].throughput >= _CLOSE * fastest]

    def simplicity(number: int) -> tuple:
        candidate = choices[number].candidate
        return candidate.ipus, candidate.stages, candidate.batch, candidate.micro_batch

    return min(near, key=simplicity)


def _prepared(traced: Traced, layers: Layers, stages: int, factor: float) -> Traced:
    sized = traced if factor == 1 else rescaled(traced, factor)
    assignment = layers.split(stages).assignment if layers.names else ()
    return staged(sized, dict(zip(layers.names, assignment, strict=True)), stages)


def _starts(layers: Layers, stages: int) -> tuple[str, ...]:
    if not layers.names:
        return ("",)
    assignment = layers.split(stages).assignment
    return tuple(layers.names[assignment.index(stage)] for stage in range(stages))


def _choice(candidate: Candidate, estimate: Estimate, starts: tuple[str, ...]) -> Choice:
    times = [stage.forward + stage.backward + stage.copies for stage in estimate.stages]
    worst = estimate.worst
    return Choice(
        candidate=candidate,
        throughput=estimate.throughput or 0.0,
        step_seconds=estimate.seconds_per_step,
        worst_tile=worst.worst_tile,
        tile=worst.limit,
        memory=worst.total,
        balance=sum(times) / len(times) / max(times) if max(times) else 1.0,
        bubble=estimate.shares.bubble / estimate.seconds_per_step if estimate.seconds_per_step else 0.0,
        fits=estimate.fits,
        starts=starts,
    )
