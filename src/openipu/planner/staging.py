"""Cuts a traced program into stages: its operations are marked with the stage of their layer."""

from collections.abc import Mapping

import attrs
from jax.extend import core

from openipu.compiler.passes.jaxprs import with_equations
from openipu.jax_boundary import in_scope
from openipu.model import Traced
from openipu.planner.layers import stack_of
from openipu.program import marks


def staged(traced: Traced, stage_of: Mapping[str, int], stages: int) -> Traced:
    """The program with its layers on stages.

    Args:
      traced: the program, marked with the names of its layers; what it says of stages is replaced.
      stage_of: the stage of each layer. What belongs to no layer goes to the first stage that uses it.
      stages: how many there are.
    """
    jaxpr = traced.step.jaxpr
    equations = [_marked(equation, stage_of, stages) for equation in jaxpr.eqns]
    step = core.ClosedJaxpr(with_equations(jaxpr, equations, list(jaxpr.outvars)), traced.step.consts)
    return attrs.evolve(traced, step=step)


def _marked(equation: core.JaxprEqn, stage_of: Mapping[str, int], stages: int) -> core.JaxprEqn:
    stack = stack_of(equation)
    stage = stage_of.get(marks.layer_of(stack) or "")
    if stage is None:
        return equation
    return in_scope(equation, marks.scope_of_stage(stage, stages, stack))
