"""What the layers of a traced program cost, and what would go from one IPU to the next if one cut between them."""

import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from jax.extend import core

from openipu.compiler.passes.jaxprs import subjaxprs
from openipu.jax_boundary import name_stack
from openipu.model import Estimate, Pass, Traced
from openipu.program import marks
from openipu.program.balance import Balance, balance


@attrs.frozen
class Layers:
    """The layers of a program in the order in which a forward pass comes to them.

    Attributes:
      names: paths.
      seconds: what each takes of a step: forward, backward and its share of the update.
      edges: seconds that a cut after each layer but the last would add: activations there, gradients back.
    """

    names: tuple[str, ...]
    seconds: tuple[float, ...]
    edges: tuple[float, ...]

    def split(self, stages: int) -> Balance:
        """The layers in stages of about equal cost."""
        return balance(self.seconds, stages, self.edges)


def layers_of(traced: Traced, estimate: Estimate) -> Layers:
    """The layers of a program.

    Args:
      traced: the program.
      estimate: of the program in one piece.
    """
    step = traced.step
    stacks = [stack_of(equation) for equation in step.jaxpr.eqns]
    found = [marks.layer_of(stack) for stack in stacks]
    forward = [not marks.is_backward(stack) for stack in stacks]
    names = names_of(traced)
    spent = dict.fromkeys(names, 0.0)
    for operation in estimate.operations:
        if operation.layer in spent:
            share = estimate.plan.gradient_accumulation if operation.phase is Pass.UPDATE else 1
            spent[operation.layer] += estimate.target.seconds(operation.total_cycles) / share
    crossing = _crossing(step.jaxpr, names, found, forward)
    bandwidth = estimate.target.pair_bandwidth
    return Layers(names, tuple(spent.values()), tuple(2 * size / bandwidth for size in crossing))


def names_of(traced: Traced) -> tuple[str, ...]:
    """The layers of a program in the order in which samples come to them in a forward pass.

    Random numbers and what is made of weights alone may stand anywhere in a program; only layers that never see a
    sample are placed by them.
    """
    jaxpr = traced.step.jaxpr
    before = len(traced.program.shared) + len(traced.program.local)
    samples = set(jaxpr.invars[before : before + len(traced.program.batch)])
    first: dict[str, int] = {}
    reached: dict[str, int] = {}
    for number, equation in enumerate(jaxpr.eqns):
        sees = any(v in samples for v in equation.invars if isinstance(v, core.Var))
        if sees:
            samples.update(equation.outvars)
        stack = stack_of(equation)
        layer = marks.layer_of(stack)
        if layer and not marks.is_backward(stack):
            first.setdefault(layer, number)
            if sees:
                reached.setdefault(layer, number)
    return tuple(sorted(first, key=lambda layer: reached.get(layer, first[layer])))


def stack_of(equation: Any) -> str:
    """The scopes of an equation; of a call without a layer of its own, those of the first one inside that has one."""
    stack = name_stack(equation)
    if marks.layer_of(stack) is None:
        for closed in subjaxprs(equation.params):
            for inner in closed.jaxpr.eqns:
                below = stack_of(inner)
                if marks.layer_of(below) is not None:
                    return f"{stack}/{below}"
    return stack


def _crossing(jaxpr: Any, names: Sequence[str], found: Sequence[str | None], forward: Sequence[bool]) -> list[float]:
    """Bytes of values that a forward pass makes before each cut and uses after it."""
    position = {name: number for number, name in enumerate(names)}
    made: dict[Any, int] = {}
    last: dict[Any, int] = {}
    now = 0
    for equation, layer, ahead in zip(jaxpr.eqns, found, forward, strict=True):
        if not ahead:
            continue
        inputs = [v for v in equation.invars if isinstance(v, core.Var)]
        # What belongs to no layer (reshapes, casts) goes with the layer whose values it takes.
        near = max((made[v] for v in inputs if v in made), default=now)
        now = position.get(layer, near) if layer else near
        for variable in inputs:
            if variable in made:
                last[variable] = max(last.get(variable, 0), now)
        made.update(dict.fromkeys(equation.outvars, now))
    sizes = [0.0] * max(0, len(names) - 1)
    for variable, end in last.items():
        for cut in range(made[variable], end):
            sizes[cut] += _bytes(variable.aval)
    return sizes


def _bytes(aval: Any) -> float:
    try:
        return math.prod(aval.shape) * np.dtype(aval.dtype).itemsize
    except (AttributeError, TypeError):
        # Random keys have a dtype of JAX's own.
        return 8.0
