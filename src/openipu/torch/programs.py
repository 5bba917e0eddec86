"""A captured module, and the optimizer that trains it, put together to a program of the core."""

from collections.abc import Sequence
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from torch.fx import Node

from openipu.errors import UnsupportedError
from openipu.program import Program, Slot
from openipu.torch import optim_rules
from openipu.torch.aten.evaluate import STOPPED, Around
from openipu.torch.capture import Captured, Evaluation
from openipu.torch.entry import PREFIX
from openipu.torch.loss import observing
from openipu.torch.optim_description import Description
from openipu.torch.optim_rules import RULES

HYPER = "hyper-parameters"
LOSS = "loss"
_SHORT = {np.dtype(np.int64): np.int32, np.dtype(np.float64): np.float32}


@attrs.frozen(eq=False)
class Training:
    """What is trained and how.

    Attributes:
      loss: the operation that the backward pass starts from.
      optimizer: the rule and its structure.
      rows: for every trained parameter, by name, its row of hyper-parameters.
    """

    loss: Node
    optimizer: Description
    rows: dict[str, int]


@attrs.frozen(eq=False)
class ModuleProgram:
    """A program whose state is a module's.

    Attributes:
      program: the program.
      shared, local: the names of parameters, buffers and optimizer state in the order of the program's slots.
      initial: the first values of what is no parameter or buffer: optimizer state and hyper-parameters.
      outputs: how many outputs are results of the module; the others are new values of inputs it writes, and anchors.
    """

    program: Program
    shared: tuple[str, ...]
    local: tuple[str, ...]
    initial: dict[str, np.ndarray]
    outputs: int


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
) -> ModuleProgram:
    """A program from a captured module.

    Args:
      name: for messages and reports.
      captured: one forward pass.
      values: the parameters and buffers by name; those that are not floating point are compiled in.
      training: the loss and its optimizer; None for inference.
      around: marks of pipeline parts.
      anchors: names of tensors inside that become outputs of their own.
    """
    constants = {n: v for n, v in values.items() if not jnp.issubdtype(v.dtype, jnp.floating)}
    written = [*captured.mutated_parameters, *captured.mutated]
    local = [n for n in written if n not in constants]
    shared = [n for n in (*captured.parameters, *captured.buffers) if n not in constants and n not in local]
    initial = _initial(training, values)
    states = list(initial)
    trained = list(training.rows) if training is not None else []

    def named(shared_values: Sequence[jax.Array], local_values: Sequence[jax.Array]) -> dict[str, Any]:
        pairs = (*zip((*shared, *states), shared_values, strict=True), *zip(local, local_values, strict=True))
        return {**constants, **dict(pairs)}

    def forward(current: dict[str, Any], batch: Sequence[jax.Array], key: jax.Array) -> Evaluation:
        parameters = [current[n] for n in captured.parameters]
        buffers = [current[n] for n in captured.buffers]
        return captured.evaluate(parameters, buffers, batch, key, around)

    def results(made: Evaluation) -> tuple[list[jax.Array], list[jax.Array]]:
        new = dict(zip(written, (*made.parameters, *made.mutated), strict=True))
        outputs = [o.astype(_SHORT.get(o.dtype, o.dtype)) for o in made.outputs]
        return [new[n] for n in local], [*outputs, *made.inputs]

    def infer(shared_values, local_values, batch, key):  # noqa: ANN001, ANN202
        current = named(shared_values, local_values)
        new, outputs = results(forward(current, batch, key))
        return [], new, [*outputs, *_anchored(anchors, current, batch, {})]

    def train(shared_values, local_values, batch, key):  # noqa: ANN001, ANN202
        assert training is not None
        start, current = training.loss, named(shared_values, local_values)

        def scaled_loss(weights: list[jax.Array]) -> tuple[jax.Array, tuple[Evaluation, jax.Array]]:
            with observing() as losses:
                made = forward({**current, **dict(zip(trained, weights, strict=True))}, batch, key)
            loss = losses[start]
            # The gradient of every element is one: the loss operation has done its own reduction.
            return jnp.sum(loss.astype(jnp.float32)) * current[HYPER][0, -1].astype(jnp.float32), (made, loss)

        gradients, (made, loss) = jax.grad(scaled_loss, has_aux=True)([current[n] for n in trained])
        accumulator = training.optimizer.structure["accumulator"]
        new, outputs = results(made)
        inside = {gradient_name(n): g for n, g in zip(trained, gradients, strict=True)} | {LOSS: loss}
        outputs += _anchored(anchors, current, batch, inside)
        return [g.astype(_wider(g.dtype, accumulator)) for g in gradients], new, outputs

    def update(shared_values, local_values, gradients):  # noqa: ANN001, ANN202
        assert training is not None
        current = named(shared_values, local_values)
        current |= _updated(training, current, dict(zip(trained, gradients, strict=True)))
        changed = {local.index(n): current[n] for n in trained if n in local}
        return [current[n] for n in (*shared, *states)], changed

    slots = [_slot(n, values[n]) for n in shared] + [_slot(n, v) for n, v in initial.items()]
    program = Program(
        name=name,
        shared=tuple(slots),
        local=tuple(_slot(n, values[n]) for n in local),
        batch=tuple(Slot(f"input_{i}", tuple(s.shape), s.dtype) for i, s in enumerate(captured.inputs)),
        step=infer if training is None else train,
        update=update if training is not None else None,
        needs_key=captured.needs_key,
    )
    return ModuleProgram(program, (*shared, *states), tuple(local), initial, len(captured.outputs))


def gradient_name(parameter: str) -> str:
    """The name of a parameter's gradient, as the backend calls it."""
    return f"Gradient___{parameter.removeprefix(PREFIX)}"


def _anchored(
    anchors: Sequence[str], current: dict[str, Any], batch: Sequence[jax.Array], inside: dict[str, jax.Array]
) -> list[jax.Array]:
    """The values of anchored tensors: weights, inputs, gradients and the loss."""
    if not anchors:
        return []
    known = {name.removeprefix(PREFIX): jnp.asarray(value) for name, value in current.items()}
    known |= {f"input_{index}": value for index, value in enumerate(batch)} | inside
    unknown = [name for name in anchors if name not in known]
    if unknown:
        raise UnsupportedError(
            f"Tensors named {unknown} cannot be anchored. Anchor one of {sorted(known)}, or return the tensor from "
            "forward."
        )
    return [known[name] for name in anchors]


def state_name(kind: str, parameter: str) -> str:
    """The name of a piece of optimizer state, as the backend calls it."""
    return f"{kind}___{parameter.removeprefix(PREFIX)}"


def _wider(dtype: np.dtype, accumulator: str) -> np.dtype:
    """Gradients are accumulated in the type asked for; those of float64 weights keep theirs."""
    return dtype if dtype == np.float64 else np.dtype(accumulator)


def _initial(training: Training | None, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    if training is None:
        return {}
    rule, structure = RULES[training.optimizer.kind], training.optimizer.structure
    found = {
        state_name(kind, name): value
        for name in training.rows
        for kind, value in rule.state(structure, values[name].shape).items()
    }
    return {**found, HYPER: training.optimizer.matrix}


def _updated(training: Training, current: dict[str, Any], gradients: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """New values of trained parameters and optimizer state."""
    optimizer = training.optimizer
    rule, hyper = RULES[optimizer.kind], current[HYPER]
    # In float32 at least: a scaled float16 gradient has no room for the division.
    ready = [g.astype(jnp.promote_types(g.dtype, jnp.float32)) for g in gradients.values()]
    if optimizer_scales(optimizer):
        ready = [g * (1 / hyper[0, -1]).astype(g.dtype) for g in ready]
    if np.isfinite(optimizer.structure["max_grad_norm"]):
        ready = optim_rules.clip(ready, optimizer.structure["max_grad_norm"])
    made: dict[str, jax.Array] = {}
    for (name, row), gradient in zip(training.rows.items(), ready, strict=True):
        kinds = rule.state(optimizer.structure, tuple(current[name].shape))
        state = {kind: current[state_name(kind, name)] for kind in kinds}
        numbers = {column: hyper[row, index] for index, column in enumerate(rule.hyper)}
        structure = {**optimizer.structure, "nesterov": optimizer.nesterov[row]}
        made[name], state = optim_rules.apply(rule, structure, current[name], gradient, state, numbers)
        made |= {state_name(kind, name): value for kind, value in state.items()}
    return made


def optimizer_scales(optimizer: Description) -> bool:
    """Whether the loss is, or may become, scaled."""
    return optimizer.loss_scaling != 1.0 or "loss_scaling" not in optimizer.constant


def _slot(name: str, value: np.ndarray) -> Slot:
    return Slot(name, tuple(value.shape), value.dtype)
