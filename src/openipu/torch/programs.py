"""A captured module, and the optimizer that trains it, put together to a program of the core."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from torch.fx import Node

from openipu.errors import UnsupportedError
from openipu.program import Program, Slot
from openipu.torch import anchoring, trapping, updates
from openipu.torch.anchoring import LOSS, LOSS_SCALE, SHORT, gradient_name, updated_name
from openipu.torch.aten.evaluate import STOPPED, Around
from openipu.torch.capture import Captured, Evaluation
from openipu.torch.entry import PREFIX
from openipu.torch.grouping import Grouped
from openipu.torch.identity import identity
from openipu.torch.loss import observing
from openipu.torch.trapping import TRAP, Trap
from openipu.torch.updates import HYPER, Training


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
      traps: whether infinities and NaNs are noticed; then the program's only finished value says where.
    """
    groups, nodes = groups or {}, nodes or {}
    constants = {n: v for n, v in values.items() if not jnp.issubdtype(v.dtype, jnp.floating) and n not in kept}
    written = [*captured.mutated_parameters, *captured.mutated]
    local = [n for n in written if n not in constants]
    _check_groups(groups, local)
    shared = [n for n in (*captured.parameters, *captured.buffers) if n not in constants and n not in local]
    initial = updates.initial_state(training, values)
    states = list(initial)
    trained = list(training.rows) if training is not None else []
    if traps:
        local.append(TRAP)
        initial[TRAP] = np.zeros((), np.int32)
    inside = _inside(training, trained, [*nodes], len(captured.inputs))
    kept_on_device = [n for n in states if n != HYPER]
    hyper = updates.named_hyper(training.optimizer, training.rows, initial[HYPER]) if training is not None else {}
    anchoring.check(anchors, [*inside, *(n.removeprefix(PREFIX) for n in values), *kept_on_device, *hyper])
    watch = [nodes[n] for n in anchors if n in nodes]
    placed = [f"{n} of {nodes[n].name}" if n in nodes else n for n in anchors]

    def named(shared_values: Sequence[jax.Array], local_values: Sequence[jax.Array]) -> dict[str, Any]:
        pairs = (*zip((*shared, *states), shared_values, strict=True), *zip(local, local_values, strict=True))
        return {**constants, **dict(pairs)}

    def forward(current: dict[str, Any], batch: Sequence[jax.Array], key: jax.Array) -> tuple[Evaluation, jax.Array]:
        parameters = [groups[n].slice(current[n]) if n in groups else current[n] for n in captured.parameters]
        buffers = [current[n] for n in captured.buffers]
        trap = Trap()
        made = captured.evaluate(parameters, buffers, batch, key, around, watch, trap.observe if traps else None)
        return made, trap.number

    def results(
        current: dict[str, Any], made: Evaluation, trapped: jax.Array
    ) -> tuple[list[jax.Array], list[jax.Array], dict[str, jax.Array]]:
        new = dict(zip(written, (*made.parameters, *made.mutated), strict=True))
        if traps:
            # The first one stays. The old value is only looked at here: stages of a pipeline need not wait for it.
            new[TRAP] = jnp.where(current[TRAP] == 0, trapped, current[TRAP])
        outputs = [o.astype(SHORT.get(o.dtype, o.dtype)) for o in made.outputs]
        watched = dict(zip([n for n in anchors if n in nodes], made.watched, strict=True))
        return [new[n] for n in local], [*outputs, *made.inputs], watched

    def infer(shared_values, local_values, batch, key):  # noqa: ANN001, ANN202
        current = named(shared_values, local_values)
        new, outputs, watched = results(current, *forward(current, batch, key))
        return [], new, [*outputs, *anchoring.gathered(anchors, current, batch, watched)]

    def train(shared_values, local_values, batch, key):  # noqa: ANN001, ANN202
        assert training is not None
        start, current = training.loss, named(shared_values, local_values)
        scale = updates.loss_scale(training, current)

        def scaled_loss(weights: list[jax.Array]) -> tuple[jax.Array, tuple[Evaluation, jax.Array, jax.Array]]:
            with observing() as losses:
                made, trapped = forward({**current, **dict(zip(trained, weights, strict=True))}, batch, key)
            loss = losses[start]
            # The gradient of every element is one: the loss operation has done its own reduction.
            return jnp.sum(loss.astype(jnp.float32)) * scale, (made, trapped, loss)

        gradients, (made, trapped, loss) = jax.grad(scaled_loss, has_aux=True)([current[n] for n in trained])
        new, outputs, watched = results(current, made, trapping.after_backward(trapped, gradients))
        known = {gradient_name(n): g for n, g in zip(trained, gradients, strict=True)}
        known |= {updated_name(n): current[n] for n in trained}
        known |= updates.named_hyper(training.optimizer, training.rows, current[HYPER])
        known |= {LOSS: loss, LOSS_SCALE: scale, **watched}
        outputs += anchoring.gathered(anchors, current, batch, known)
        return updates.accumulated(training, trained, gradients, groups), new, outputs

    def update(shared_values, local_values, gradients):  # noqa: ANN001, ANN202
        assert training is not None
        current = named(shared_values, local_values)
        current |= updates.updated(training, current, gradients, groups)
        changed = {local.index(n): current[n] for n in trained if n in local}
        return [current[n] for n in (*shared, *states)], changed

    def finish(shared_values, local_values):  # noqa: ANN001, ANN202
        current = named(shared_values, local_values)
        return [trapping.at_the_end(current[TRAP], [current[n] for n in trained])]

    slots = [_slot(n, values[n]) for n in shared] + [_slot(n, initial[n]) for n in states]
    program = Program(
        name=name,
        shared=tuple(slots),
        local=tuple(_slot(n, values[n] if n in values else initial[n]) for n in local),
        batch=tuple(Slot(f"input_{i}", tuple(s.shape), s.dtype) for i, s in enumerate(captured.inputs)),
        step=infer if training is None else train,
        update=update if training is not None else None,
        finish=finish if traps else None,
        needs_key=captured.needs_key,
        identity=identity(captured, constants, training, placed, groups, kept, traps),
    )
    return ModuleProgram(program, (*shared, *states), tuple(local), initial, len(captured.outputs), tuple(inside))


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
