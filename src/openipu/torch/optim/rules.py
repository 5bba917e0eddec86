"""The update rules of the optimizers, as functions on arrays."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

State = dict[str, jax.Array]
# Hyper-parameters of one weight, as float64 scalars: bias corrections lose too much in float32.
Hyper = Mapping[str, jax.Array]


class Rule(NamedTuple):
    """One optimizer.

    Attributes:
      hyper: the names of the hyper-parameters, in the order of a row of the hyper-parameter matrix.
      state: (structure, shape) -> {name: initial value}; what is kept for every weight.
      update: (structure, weight, gradient, state, hyper-parameters) -> (weight, state), in the weight's float32.
    """

    hyper: tuple[str, ...]
    state: Callable[[Mapping[str, Any], tuple[int, ...]], dict[str, np.ndarray]]
    update: Callable[[Mapping[str, Any], jax.Array, jax.Array, State, Hyper], tuple[jax.Array, State]]


def apply(rule: Rule, structure: Mapping[str, Any], weight: jax.Array, gradient: jax.Array, state: State, hyper: Hyper):  # noqa: ANN201
    """One update of one weight: computed in float32 at least, stored in the types that weight and state have."""
    wide = jnp.promote_types(weight.dtype, jnp.float32)
    own = {name: value.astype(wide) if name != "Step" else value for name, value in state.items()}
    new, made = rule.update(structure, weight.astype(wide), gradient.astype(wide), own, hyper)
    return new.astype(weight.dtype), {name: made[name].astype(state[name].dtype) for name in state}


def apply_to_each(
    rule: Rule, structure: Mapping[str, Any], weight: jax.Array, gradient: jax.Array, state: State, hyper: Hyper
) -> tuple[jax.Array, State]:
    """One update of every slice of a weight along its first axis, as if each were a weight of its own."""
    slices = jax.vmap(lambda w, g, s: apply(rule, structure, w, g, s, hyper))
    return slices(weight, gradient, state)


def clip(gradients: list[jax.Array], limit: float) -> list[jax.Array]:
    """Gradients scaled so that their common norm does not exceed a limit."""
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(g.astype(jnp.float32))) for g in gradients))
    factor = limit / jnp.maximum(norm, limit)
    return [g * factor.astype(g.dtype) for g in gradients]


def _zeros(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.zeros(shape, dtype)


def _cast(like: jax.Array, *values: Any) -> list[jax.Array]:
    return [jnp.asarray(value).astype(like.dtype) for value in values]


def _sgd_state(structure: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    if not structure["momentum"]:
        return {}
    return {"Accl1": _zeros(shape, structure["first"])}


def _sgd(structure: Mapping[str, Any], w: jax.Array, g: jax.Array, state: State, h: Hyper) -> tuple[jax.Array, State]:
    lr, momentum, decay, keep = _cast(w, h["lr"], h["momentum"], h["weight_decay"], 1 - h["dampening"])
    g = g + decay * w
    if not structure["momentum"]:
        return w - lr * keep * g, {}
    velocity = momentum * state["Accl1"] + keep * g
    step = g + momentum * velocity if structure["nesterov"] else velocity
    return w - lr * step, {"Accl1": velocity}


def _adam_state(structure: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {
        "Accl1": _zeros(shape, structure["first"]),
        "Accl2": _zeros(shape, structure["second"]),
        "Step": _zeros((), "float32"),
    }


def _moments(structure: Mapping[str, Any], g: jax.Array, state: State, h: Hyper) -> tuple[jax.Array, State]:
    """The direction of Adam: the first moment over the root of the second, and the new state."""
    b1, rest1, b2, rest2, eps = _cast(g, h["beta1"], 1 - h["beta1"], h["beta2"], 1 - h["beta2"], h["eps"])
    first = b1 * state["Accl1"] + rest1 * g
    second = b2 * state["Accl2"] + rest2 * g * g
    step = state["Step"] + 1
    made = {"Accl1": first, "Accl2": second, "Step": step}
    if structure["bias_correction"]:
        count = step.astype(h["beta1"].dtype)
        one, two = _cast(g, 1 / (1 - h["beta1"] ** count), 1 / jnp.sqrt(1 - h["beta2"] ** count))
        return (first * one) / (jnp.sqrt(second) * two + eps), made
    return first / (jnp.sqrt(second) + eps), made


def _adam(structure: Mapping[str, Any], w: jax.Array, g: jax.Array, state: State, h: Hyper) -> tuple[jax.Array, State]:
    lr, decay = _cast(w, h["lr"], h["weight_decay"])
    direction, state = _moments(structure, g + decay * w, state, h)
    return w - lr * direction, state


def _adamw(structure: Mapping[str, Any], w: jax.Array, g: jax.Array, state: State, h: Hyper) -> tuple[jax.Array, State]:
    lr, decay = _cast(w, h["lr"], h["weight_decay"])
    direction, state = _moments(structure, g, state, h)
    return w - lr * (direction + decay * w), state


def _lamb(structure: Mapping[str, Any], w: jax.Array, g: jax.Array, state: State, h: Hyper) -> tuple[jax.Array, State]:
    lr, decay, limit = _cast(w, h["lr"], h["weight_decay"], h["max_weight_norm"])
    direction, state = _moments(structure, g, state, h)
    direction = direction + decay * w
    size = jnp.minimum(jnp.linalg.norm(w.ravel()), limit)
    length = jnp.linalg.norm(direction.ravel())
    trust = jnp.where((size == 0) | (length == 0), 1, size / jnp.where(length == 0, 1, length))
    return w - lr * trust * direction, state


def _rmsprop_state(structure: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    first = np.ones(shape, structure["second"]) if structure["tf"] else _zeros(shape, structure["second"])
    state = {"Accl1": first}
    if structure["centered"]:
        state["Accl3"] = _zeros(shape, structure["first"])
    if structure["momentum"]:
        state["Accl2"] = _zeros(shape, structure["first"])
    return state


def _rmsprop(
    structure: Mapping[str, Any], w: jax.Array, g: jax.Array, state: State, h: Hyper
) -> tuple[jax.Array, State]:
    lr, momentum, decay, eps = _cast(w, h["lr"], h["momentum"], h["weight_decay"], h["eps"])
    alpha, rest = _cast(w, h["alpha"], 1 - h["alpha"])
    g = g + decay * w
    square = alpha * state["Accl1"] + rest * g * g
    made = {"Accl1": square}
    if structure["centered"]:
        made["Accl3"] = alpha * state["Accl3"] + rest * g
        square = square - made["Accl3"] * made["Accl3"]
    step = g / (jnp.sqrt(square + eps) if structure["tf"] else jnp.sqrt(square) + eps)
    if not structure["momentum"]:
        return w - lr * step, made
    if structure["tf"]:
        made["Accl2"] = momentum * state["Accl2"] + lr * step
        return w - made["Accl2"], made
    made["Accl2"] = momentum * state["Accl2"] + step
    return w - lr * made["Accl2"], made


_ADAM = ("lr", "beta1", "beta2", "eps", "weight_decay")
RULES = {
    "SGD": Rule(("lr", "momentum", "dampening", "weight_decay", "velocity_scaling"), _sgd_state, _sgd),
    "Adam": Rule(_ADAM, _adam_state, _adam),
    "AdamW": Rule(_ADAM, _adam_state, _adamw),
    "LAMB": Rule((*_ADAM, "max_weight_norm"), _adam_state, _lamb),
    "RMSprop": Rule(("lr", "momentum", "weight_decay", "alpha", "eps"), _rmsprop_state, _rmsprop),
}
