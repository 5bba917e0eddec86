"""A captured module, and the optimizer that trains it, put together to a program of the core."""

from collections.abc import Collection, Mapping, Sequence

import attrs
import jax.numpy as jnp
import numpy as np
from torch.fx import Node

from openipu.program import Program, Slot
from openipu.torch.aten.evaluate import STOPPED, Around
from openipu.torch.capture.flat_module import PREFIX
from openipu.torch.capture.grouping import Grouped
from openipu.torch.capture.module import Captured
from openipu.torch.capture.ranges import limits
from openipu.torch.exceptions import UnsupportedError
from openipu.torch.optim import updates
from openipu.torch.optim.updates import HYPER, Training
from openipu.torch.program import anchoring, trapping
from openipu.torch.program.anchoring import LOSS, LOSS_SCALE, gradient_name, updated_name
from openipu.torch.program.identity import identity
from openipu.torch.program.steps import Steps


@attrs.frozen(eq=False)
class ModuleProgram:
    """A program whose state is a module's.

    Attributes:
      program: the program.
      shared, local: the names of parameters, buffers and optimizer state in the order of the program's slots.
      initial: the first values of what is no parameter or buffer: optimizer state and hyper-parameters.
      outputs: how many outputs are results of the module; the others are new values of inputs it writes, and anchors.
      inside: names of the values that can be anchored and are no state.
    """

    program: Program
    shared: tuple[str, ...]
    local: tuple[str, ...]
    initial: dict[str, np.ndarray]
    outputs: int
    inside: tuple[str, ...]


def trained_names(captured: Captured, loss: Node) -> list[str]:
    """The parameters that the loss depends on and that require a gradient."""
    sources = _differentiable_ancestors(loss)
    return [
        name
        for name, nodes, wanted in zip(captured.parameters, captured._parameter_nodes, captured.trainable, strict=True)
        if wanted and any(node in sources for node in nodes)
    ]


def _differentiable_ancestors(loss: Node) -> set[Node]:
    """What the loss is computed from without a cut of the gradient in between."""
    found, waiting = {loss}, [loss]
    while waiting:
        node = waiting.pop()
        if node.meta.get("custom", {}).get(STOPPED):
            continue
        for source in node.all_input_nodes:
            if source not in found:
                found.add(source)
                waiting.append(source)
    return found


def assemble(
    name: str,
    captured: Captured,
    values: dict[str, np.ndarray],
    training: Training | None = None,
    around: Around | None = None,
    anchors: Sequence[str] = (),
    nodes: Mapping[str, Node] | None = None,
    groups: Mapping[str, Grouped] | None = None,
    kept: Collection[str] = (),
    traps: bool = False,
) -> ModuleProgram:
    """A program from a captured module.

    Args:
      name: for messages and reports.
      captured: one forward pass.
      values: the parameters and buffers by name; those that are not floating point are compiled in.
      training: the loss and its optimizer; None for inference.
      around: marks of pipeline parts.
      anchors: names of tensors inside that become outputs of their own.
      nodes: operations whose values may be among them, by name.
      groups: parameters of which groups of replicas have a slice each, by name.
      kept: buffers that are state although they are not floating point.
      traps: whether operations are to be found again by the names of their nodes, when one traps.
    """
    groups, nodes = groups or {}, nodes or {}
    constants = {n: v for n, v in values.items() if not jnp.issubdtype(v.dtype, jnp.floating) and n not in kept}
    local = [n for n in (*captured.mutated_parameters, *captured.mutated) if n not in constants]
    _check_groups(groups, local)
    initial = updates.initial_state(training, values, groups)
    shared = [n for n in (*captured.parameters, *captured.buffers) if n not in constants and n not in local]
    around = trapping.named(around) if traps else around
    steps = Steps(captured, training, constants, (*shared, *initial), local, groups, anchors, nodes, around)
    inside = _inside(training, steps.trained, [*nodes], len(captured.inputs))
    kept_on_device = [n for n in initial if n != HYPER]
    hyper = updates.named_hyper(training.optimizer, training.rows, initial[HYPER]) if training is not None else {}
    anchoring.check(anchors, [*inside, *(n.removeprefix(PREFIX) for n in values), *kept_on_device, *hyper])
    placed = [f"{n} of {nodes[n].name}" if n in nodes else n for n in anchors]
    program = Program(
        name=name,
        shared=tuple(_slot(n, initial[n] if n in initial else values[n]) for n in steps.shared),
        local=tuple(_slot(n, values[n]) for n in local),
        batch=tuple(
            Slot(f"input_{i}", tuple(s.shape), s.dtype, limit=limit)
            for i, (s, limit) in enumerate(zip(captured.inputs, limits(captured.input_nodes), strict=True))
        ),
        step=steps.infer if training is None else steps.train,
        update=steps.update if training is not None else None,
        needs_key=captured.needs_key,
        accumulators=training.accumulators if training is not None else None,
        identity=identity(captured, constants, training, placed, groups, kept, traps),
    )
    return ModuleProgram(program, tuple(steps.shared), tuple(local), initial, len(captured.outputs), tuple(inside))


def _check_groups(groups: Mapping[str, Grouped], local: Sequence[str]) -> None:
    both = [n.removeprefix(PREFIX) for n in local if n in groups]
    if both:
        raise UnsupportedError(f"Parameters with a replicaGrouping cannot be written by forward. Received: {both}.")


def _inside(training: Training | None, trained: Sequence[str], nodes: Sequence[str], inputs: int) -> list[str]:
    """Names of the values of a step that can be anchored."""
    names = [f"input_{index}" for index in range(inputs)] + list(nodes)
    if training is None:
        return names
    return [*names, LOSS, LOSS_SCALE, *map(gradient_name, trained), *map(updated_name, trained)]


def _slot(name: str, value: np.ndarray) -> Slot:
    return Slot(name, tuple(value.shape), value.dtype)
