"""What training adds to a forward pass: gradients gathered over steps and replicas, and the weight update."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from torch.fx import Node

from openipu.torch.capture.flat_module import PREFIX
from openipu.torch.capture.grouping import Grouped
from openipu.torch.optim import loss_scaling, rules
from openipu.torch.optim.description import Description
from openipu.torch.optim.rules import RULES

HYPER = "hyper-parameters"


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

    @property
    def accumulators(self) -> tuple[str | None, ...] | None:
        """The dtype of the accumulator of each gradient; None when all keep the gradient's own."""
        if self.optimizer.structure["accumulator"] != "float16":
            return None
        gradients: tuple[str | None, ...] = ("float16",) * len(self.rows)
        return gradients if self.optimizer.automatic is None else (*gradients, None)


def loss_scale(training: Training, current: Mapping[str, Any]) -> jax.Array:
    """The factor of the loss, in float32."""
    base = current[HYPER][0, -1]
    return loss_scaling.scale(base, current) if training.optimizer.automatic else base.astype(jnp.float32)


def accumulated(training: Training, gradients: Sequence[jax.Array]) -> list[jax.Array]:
    """What the steps of an update, and the replicas, add up: gradients, then statistics for the loss scale.

    A weight that groups of replicas have a slice of each is no exception: a mean is what the replicas of its group add
    up, divided by the number of all replicas.

    Args:
      training: what is trained.
      gradients: those of its parameters.
    """
    accumulator = training.optimizer.structure["accumulator"]
    made = [g.astype(_wider(g.dtype, accumulator)) for g in gradients]
    automatic = training.optimizer.automatic
    return made if automatic is None else [*made, loss_scaling.statistics(gradients, automatic)]


def named_hyper(optimizer: Description, rows: Mapping[str, int], matrix: Any) -> dict[str, Any]:
    """Hyper-parameters under the names that the backend gives them.

    Args:
      optimizer: what is known of it.
      rows: for every trained parameter, by name, its row.
      matrix: the numbers; an array of any library.
    """
    columns = {name: index for index, name in enumerate(RULES[optimizer.kind].hyper)}
    scale = matrix[0, -1]
    found = {"lossScaling_FLOAT": scale}
    for full, row in rows.items():
        name = full.removeprefix(PREFIX)
        rate, decay = matrix[row, columns["lr"]], matrix[row, columns["weight_decay"]]
        if optimizer.kind == "SGD" and not optimizer.structure["momentum"]:
            kept = rate * (1 - matrix[row, columns["dampening"]])
            found[f"scaledLearningRate0___specific___{name}"] = kept / scale
            found[f"weightDecayScaleFactor0___specific___{name}"] = 1 - kept * decay
        else:
            found[f"learningRate___specific___{name}"] = rate
            found[f"weightDecay___specific___{name}"] = decay
    return found


def state_name(kind: str, parameter: str) -> str:
    """The name of a piece of optimizer state, as the backend calls it."""
    return f"{kind}___{parameter.removeprefix(PREFIX)}"


def _wider(dtype: np.dtype, accumulator: str) -> np.dtype:
    """Gradients are accumulated in the type asked for; those of float64 weights keep theirs."""
    return dtype if dtype == np.float64 else np.dtype(accumulator)


def initial_state(
    training: Training | None, values: dict[str, np.ndarray], groups: Mapping[str, Grouped]
) -> dict[str, np.ndarray]:
    """The optimizer's state before the first update; that of weights with replica groups has the groups as an axis."""
    if training is None:
        return {}
    rule, structure = RULES[training.optimizer.kind], training.optimizer.structure
    found = {}
    for name in training.rows:
        for kind, value in rule.state(structure, values[name].shape).items():
            one_for_all = name in groups and not value.ndim
            found[state_name(kind, name)] = np.full(groups[name].count, value) if one_for_all else value
    if training.optimizer.automatic is not None:
        found |= loss_scaling.initial()
    return {**found, HYPER: training.optimizer.matrix}


def updated(
    training: Training, current: dict[str, Any], sums: Sequence[jax.Array], groups: Mapping[str, Grouped]
) -> dict[str, jax.Array]:
    """New values of trained parameters and optimizer state."""
    optimizer = training.optimizer
    rule, hyper = RULES[optimizer.kind], current[HYPER]
    gradients = dict(zip(training.rows, sums, strict=False))
    # In float32 at least: a scaled float16 gradient has no room for the division.
    ready = [g.astype(jnp.promote_types(g.dtype, jnp.float32)) for g in gradients.values()]
    if optimizer.automatic is not None:
        ready = [g / loss_scale(training, current).astype(g.dtype) for g in ready]
    elif scales(optimizer):
        ready = [g * (1 / hyper[0, -1]).astype(g.dtype) for g in ready]
    if np.isfinite(optimizer.structure["max_grad_norm"]):
        ready = rules.clip(ready, optimizer.structure["max_grad_norm"])
    made: dict[str, jax.Array] = {}
    for (name, row), gradient in zip(training.rows.items(), ready, strict=True):
        kinds = rule.state(optimizer.structure, tuple(current[name].shape))
        state = {kind: current[state_name(kind, name)] for kind in kinds}
        numbers = {column: hyper[row, index] for index, column in enumerate(rule.hyper)}
        structure = {**optimizer.structure, "nesterov": optimizer.nesterov[row]}
        apply = rules.apply if name not in groups else rules.apply_to_each
        made[name], state = apply(rule, structure, current[name], gradient, state, numbers)
        made |= {state_name(kind, name): value for kind, value in state.items()}
    if optimizer.automatic is None:
        return made
    # Gradients that have overflowed say nothing but that the scale was too large.
    sound = jnp.all(jnp.stack([jnp.all(jnp.isfinite(g)) for g in ready]))
    made = {name: jnp.where(sound, value, current[name]) for name, value in made.items()}
    return made | loss_scaling.advanced(current, hyper[0, -1], sums[-1], optimizer.automatic)


def scales(optimizer: Description) -> bool:
    """Whether the loss is, or may become, scaled."""
    return optimizer.loss_scaling != 1.0 or "loss_scaling" not in optimizer.constant
