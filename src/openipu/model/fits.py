"""Would it fit? Asked of every program when it is compiled; answered at length only where there is a doubt."""

import logging
import math
from collections.abc import Mapping

from jax.extend import core

from openipu.errors import OutOfMemoryError
from openipu.hardware.target import Target
from openipu.model import constants as c
from openipu.model.advice import suggestions
from openipu.model.captured import trace
from openipu.model.estimate import Category, Estimate, Suggestion
from openipu.model.flatten import ALIASES
from openipu.model.options import Options
from openipu.model.predict import estimate
from openipu.program import Plan, Program

log = logging.getLogger("openipu.memory")

_MIB = 2**20


def check(program: Program, plan: Plan, target: Target, options: Options, step: core.ClosedJaxpr, strict: bool) -> None:
    """Warns of a program that would not fit, or refuses it.

    Args:
      program, plan, target, options: as for `estimate`.
      step: as it was traced to be compiled.
      strict: whether to raise `OutOfMemoryError` rather than to warn.
    """
    if surely_fits(program, plan, target, options, step):
        return
    try:
        text = _doubt(program, plan, target, options)
    except Exception as error:
        # Whether a program would fit is worth less than that it runs.
        log.warning(
            "It cannot be said whether %s would fit on an IPU: %s: %s", program.name, type(error).__name__, error
        )
        return
    if text is None:
        return
    if strict:
        raise OutOfMemoryError(text)
    log.warning("%s", text)


def _doubt(program: Program, plan: Plan, target: Target, options: Options) -> str | None:
    """What is wrong; None when the program fits after all."""
    traced = trace(program, plan)
    made = estimate(program, plan, target, options, traced)
    return None if made.fits else complaint(made, suggestions(made, program, traced))


def surely_fits(program: Program, plan: Plan, target: Target, options: Options, step: core.ClosedJaxpr) -> bool:
    """Whether a program fits even if nothing of it were ever freed: a bound that takes no planning."""
    stages = plan.pipeline.stages if plan.pipeline is not None else 1
    kept = sum(math.prod(slot.shape) * slot.dtype.itemsize for slot in (*program.shared, *program.local))
    gradients = sum(_bytes(aval) for aval in step.out_avals)
    activations, distinct = 0, set()
    pending = [(step.jaxpr, 1)]
    while pending:
        jaxpr, times = pending.pop()
        for equation in jaxpr.eqns:
            inner = [b for v in equation.params.values() for b in (v if isinstance(v, tuple | list) else (v,))]
            bodies = [getattr(b, "jaxpr", b) for b in inner if isinstance(b, core.Jaxpr | core.ClosedJaxpr)]
            pending.extend((body, times) for body in bodies)
            if equation.primitive.name not in ALIASES:
                made = sum(_bytes(v.aval) for v in equation.outvars)
                activations += made
                distinct.add((equation.primitive.name, made))
    waiting = 1 + 2 * (stages - 1)
    shares = [options.matmul_proportion, options.convolution_proportion, *(p for _, p in options.stage_proportions)]
    code = (c.PROGRAM_BYTES + c.OPERATION_BYTES * len(distinct)) * target.tiles
    total = 2 * kept + 2 * gradients + activations * waiting + code + max(shares) * target.memory
    return total <= target.memory


def _bytes(aval: object) -> int:
    shape = getattr(aval, "shape", ())
    return math.prod(shape) * min(4, getattr(getattr(aval, "dtype", None), "itemsize", 4))


def complaint(made: Estimate, found: tuple[Suggestion, ...], layers: int = 5) -> str:
    """What is too large, by how much, for whose sake, and what would help."""
    worst = made.worst
    lines = [
        f"{made.program} would not fit on {made.target.name.capitalize()} IPUs: the fullest tile of IPU {worst.ipu} "
        f"would need {worst.worst_tile / 1024:,.0f} KiB of {worst.limit / 1024:,.0f} "
        f"({worst.overflow / 1024:,.0f} KiB too much), "
        f"the IPU {worst.total / _MIB:,.0f} MiB (by the model {worst.low / _MIB:,.0f} to {worst.high / _MIB:,.0f}) of "
        f"{worst.capacity / _MIB:,.0f}. It runs here all the same; OPENIPU_MEMORY=off silences this.",
        "Largest layers: " + "; ".join(_layer(one.layer, one.bytes) for one in worst.contributors[:layers]) + ".",
    ]
    if found:
        lines.append("What would help (predicted):")
    lines += [f"  {_suggestion(one, made)}" for one in found]
    return "\n".join(lines)


def _layer(name: str, sizes: Mapping[Category, int]) -> str:
    category, largest = max(sizes.items(), key=lambda item: item[1])
    total = sum(sizes.values())
    return f"{name or 'outside of layers'} {total / _MIB:,.1f} MiB ({category.value} {largest / _MIB:,.1f})"


def _suggestion(one: Suggestion, made: Estimate) -> str:
    change = one.seconds / made.seconds_per_step
    time = f", {change:+.0%} time" if abs(change) >= 0.005 else ""
    enough = "it fits then" if one.fits else "not enough alone"
    return f"{one.option}: {one.saves / _MIB:,.0f} MiB less{time}, {enough} ({one.how})"
