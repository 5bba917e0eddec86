"""An optimizer as plain data: its rule, what is compiled in, and the numbers that may change."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import torch

from openipu.torch.exceptions import Error
from openipu.torch.logger import logger
from openipu.torch.optim import optimizers
from openipu.torch.optim.loss_scaling import Automatic
from openipu.torch.optim.rules import RULES

# AdamW before Adam: recent torch derives one from the other.
_KINDS: tuple[tuple[type, str], ...] = (
    (torch.optim.AdamW, "AdamW"),
    (torch.optim.Adam, "Adam"),
    (torch.optim.RMSprop, "RMSprop"),
    (torch.optim.SGD, "SGD"),
    (optimizers.LAMB, "LAMB"),
)
_EXACT = {*(kind for kind, _ in _KINDS), optimizers.SGD, optimizers.Adam, optimizers.AdamW, optimizers.RMSprop}
# The values of torch's optimizers that are compiled in; other values of the same attributes may change.
_CONSTANT_VALUES = {
    "weight_decay": 0.0, "momentum": 0.0, "dampening": 0.0, "eps": 1e-8, "loss_scaling": 1.0, "velocity_scaling": 1.0,
    "max_weight_norm": 65500.0,
}  # fmt: skip
_ALWAYS_CONSTANT = ("betas", "alpha")


@attrs.frozen
class Description:
    """What an executor knows of an optimizer.

    Attributes:
      kind: the name of its rule.
      structure: what shapes the compiled program.
      rows: hyper-parameters of every group, then of weights in no group; columns as the rule says.
      nesterov: for every row, whether momentum looks ahead.
      constant: the names of hyper-parameters that are compiled in.
      loss_scaling: the factor of the loss.
      automatic: how the device changes that factor; None when it does not.
    """

    kind: str
    structure: Mapping[str, Any]
    rows: tuple[tuple[float, ...], ...]
    nesterov: tuple[bool, ...]
    constant: frozenset[str]
    loss_scaling: float
    automatic: Automatic | None = None

    @property
    def matrix(self) -> np.ndarray:
        """The numbers the device is given: one row for each group; the factor of the loss in the last column."""
        rows = np.asarray(self.rows, np.float64)
        return np.hstack([rows, np.full((len(rows), 1), self.loss_scaling)])


def describe(optimizer: torch.optim.Optimizer, automatic: Automatic | None = None) -> Description:
    """The plain description of an optimizer.

    Args:
      optimizer: the user's.
      automatic: how the device changes the factor of the loss, if it does.
    """
    kind = next((name for cls, name in _KINDS if isinstance(optimizer, cls)), None)
    assert kind is not None, (
        "Unsupported optimizer type. Types supported: SGD, Adam, AdamW, RMSprop of torch.optim and poptorch.optim, and "
        f"poptorch.optim.LAMB. Received: {type(optimizer)}"
    )
    if type(optimizer) not in _EXACT:
        logger.warning(
            "%s is treated as its base class %s: Poptorch does not run Python optimizer code directly",
            type(optimizer).__name__, kind,
        )  # fmt: skip
    groups = [*optimizer.param_groups, {**optimizer.defaults}]
    if any(group.get("amsgrad") for group in groups):
        raise ValueError("Only non-amsgrad Adam/AdamW optimizers are supported.")
    if any(group.get("maximize") for group in groups):
        logger.warning("maximize=True of %s is ignored: the device always minimises the loss", kind)
    constant = frozenset(_constants(optimizer, kind, groups)) - ({"loss_scaling"} if automatic is not None else set())
    return Description(
        kind=kind,
        structure=_structure(optimizer, kind, groups, constant),
        rows=tuple(tuple(_hyper(group, name) for name in RULES[kind].hyper) for group in groups),
        nesterov=tuple(bool(group.get("nesterov", False)) for group in groups),
        constant=constant,
        loss_scaling=float(getattr(optimizer, "loss_scaling", 1.0)),
        automatic=automatic,
    )


class Attributes:
    """The names an optimizer had when it was first seen: what is added later has no effect, and is said so."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._known = _attribute_names(optimizer)
        self._said: set[str] = set()

    def check(self, optimizer: torch.optim.Optimizer, kind: str, relaxed: bool) -> None:
        """Mention names that are new, each message once.

        Args:
          optimizer: as it is now.
          kind: the name of its rule.
          relaxed: mention them in debug logs only.
        """
        for where, names in _attribute_names(optimizer).items():
            new = sorted(names - self._known.get(where, names))
            message = f"Ignoring unexpected {where} in {kind} optimizer: {new}"
            if new and message not in self._said:
                self._said.add(message)
                (logger.debug if relaxed else logger.warning)(message)


def _attribute_names(optimizer: torch.optim.Optimizer) -> dict[str, set[str]]:
    groups = {f"group {index} attribute": set(group) for index, group in enumerate(optimizer.param_groups)}
    own = {name for name in vars(optimizer) if not name.startswith("_")}
    return {"default group variable": set(optimizer.defaults), **groups, "optimizer attribute": own}


def check_replaceable(old: Description, new: Description) -> None:
    """Refuses an optimizer that the compiled program cannot take over."""
    if old.kind != new.kind:
        raise Error(
            f"The type of the optimizer cannot change after compilation: expected {old.kind} but got {new.kind}. "
            "Call destroy() first."
        )
    if len(old.rows) != len(new.rows):
        raise Error(
            f"Groups cannot be added after compilation: expected {len(old.rows) - 1} but got {len(new.rows) - 1}."
        )
    if old.constant != new.constant:
        raise Error(
            "Can not replace a constant value with a non constant value. Attributes that changed between constant and "
            f"variable: {sorted(old.constant ^ new.constant)}."
        )
    names = (*RULES[old.kind].hyper, "loss_scaling")
    for before, after in zip(old.matrix, new.matrix, strict=True):
        for name, first, second in zip(names, before, after, strict=True):
            if _attribute(name) in old.constant and first != second:
                raise Error(
                    f"Values are constant but do not match. {name} was compiled in as {first} and is now {second}."
                )
    if dict(old.structure) != dict(new.structure) or old.nesterov != new.nesterov:
        raise Error(
            "Values are constant but do not match. What the executable was compiled with: "
            f"{dict(old.structure)}; the new optimizer: {dict(new.structure)}."
        )


def _attribute(column: str) -> str:
    return "betas" if column in ("beta1", "beta2") else column


def _hyper(group: Mapping[str, Any], name: str) -> float:
    if name in ("beta1", "beta2"):
        return float(group["betas"][name == "beta2"])
    return float(group.get(name, _CONSTANT_VALUES.get(name, 0.0)))


def _constants(optimizer: torch.optim.Optimizer, kind: str, groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Which attributes are compiled in, of those that every optimizer of the kind has: torch's know some more."""
    names = dict.fromkeys([*map(_attribute, RULES[kind].hyper), "loss_scaling"])
    if isinstance(optimizer, optimizers.Optimizer):
        return [name for name in names if optimizer.variable_attrs.isConstant(name)]
    usual = dict(_CONSTANT_VALUES)
    if isinstance(optimizer, torch.optim.AdamW):
        usual["weight_decay"] = 0.01
    found = []
    for name in names:
        values = [getattr(optimizer, name, 1.0)] if name == "loss_scaling" else [group.get(name) for group in groups]
        if name in _ALWAYS_CONSTANT or (name in usual and all(value in (usual[name], None) for value in values)):
            found.append(name)
    return found


def _structure(
    optimizer: torch.optim.Optimizer, kind: str, groups: Sequence[Mapping[str, Any]], constant: frozenset[str]
) -> dict[str, Any]:
    centered = {bool(group.get("centered", False)) for group in groups}
    assert len(centered) == 1, "All parameter groups must have the same value for the 'centered' attribute"
    still = "momentum" in constant and not any(group.get("momentum") for group in groups)
    velocity = getattr(optimizer, "velocity_accum_type", torch.float32)
    first = velocity if kind == "SGD" else getattr(optimizer, "first_order_momentum_accum_type", torch.float32)
    second = getattr(optimizer, "second_order_momentum_accum_type", torch.float32)
    accumulator = getattr(optimizer, "accum_type", torch.float32)
    if getattr(optimizer, "use_combined_accum", False):
        # One tensor for both, whose type cannot be chosen.
        accumulator = first = torch.float32
    return {
        "momentum": not still,
        "centered": centered.pop(),
        "tf": bool(getattr(optimizer, "use_tf_variant", False)),
        # AdamW of the original corrects always, whatever is asked for.
        "bias_correction": bool(getattr(optimizer, "bias_correction", True)) or kind != "LAMB",
        "accumulator": _name(accumulator),
        "first": _name(first),
        "second": _name(second),
        "max_grad_norm": float(getattr(optimizer, "max_grad_norm", float("inf"))),
    }


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
