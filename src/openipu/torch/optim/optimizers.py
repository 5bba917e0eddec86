"""The optimizers of `poptorch.optim`: torch's, with the attributes of the device and the state it keeps."""

import copy
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from openipu.torch.logger import logger

_ALLOWED_TYPES = (torch.float16, torch.float32, None)


class VariableAttributes:
    """Which attributes of an optimizer may change after a model is compiled.

    Args:
      variable_attributes: the names of those that may.
      allowed_attributes: all names.
    """

    def __init__(self, variable_attributes: Iterable[str], allowed_attributes: Iterable[str]) -> None:
        self._allowed = list(allowed_attributes)
        self._variable: set[str] = set()
        for name in variable_attributes:
            self.markAsVariable(name)

    def isConstant(self, attr: str) -> bool:
        """Whether an attribute is compiled in."""
        return self._checked(attr) not in self._variable

    def markAsConstant(self, attr: str) -> None:
        """Compiles an attribute in."""
        self._variable.discard(self._checked(attr))

    def markAsVariable(self, attr: str) -> None:
        """Lets an attribute change after compilation."""
        self._variable.add(self._checked(attr))

    def _checked(self, attr: str) -> str:
        assert attr in self._allowed, f"Unknown attribute {attr}, allowed values: {self._allowed}"
        return attr


class Optimizer:
    """What the optimizers of poptorch add to those of torch: state that lives on the device."""

    variable_attrs: VariableAttributes

    def __init__(self) -> None:
        self._device: Callable[[], Any] = _nobody
        self._loaded: dict[str, Any] | None = None
        self._cache: dict[str, Any] = {"ipu_state": None, "ipu_param": None}

    def set_state_dict(self, state: dict[str, Any]) -> None:
        """Keeps state to be uploaded before the next run."""
        self._loaded = {key: state[key] for key in ("ipu_state", "ipu_param")}
        self._cache = dict(self._loaded)

    def get_state_dict(self) -> dict[str, Any]:
        """The state kept on the device and its parameters, brought to the host."""
        device = self._device()
        if device is not None and self._loaded is None:
            self._cache = device.optimizer_state()
        return dict(self._cache)

    def has_state(self) -> bool:
        """Whether there is state to upload."""
        return self._loaded is not None

    def state_dict(self) -> dict[str, Any]:
        """torch's state, and that of the device; the latter is None before compilation."""
        kept = torch.optim.Optimizer.state_dict(self)  # type: ignore[arg-type]
        return {**self.get_state_dict(), **kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave; the device gets it before the next run."""
        if not state:
            raise RuntimeError("Cannot load optimizer state dictionary because it is empty.")
        if "ipu_state" not in state or "ipu_param" not in state:
            raise RuntimeError("Only IPU optimizer states can be loaded onto the IPU.")
        self.set_state_dict(state)
        rest = {key: value for key, value in state.items() if key not in ("ipu_state", "ipu_param")}
        torch.optim.Optimizer.load_state_dict(self, rest)  # type: ignore[arg-type]

    def _connect(self, device: Any) -> None:
        self._device = weakref.ref(device)

    def _disconnect(self) -> None:
        """Keep the device's state in the object, and forget the device."""
        self.get_state_dict()
        self._device = _nobody

    def __getstate__(self) -> dict[str, Any]:
        # torch's own leaves out everything but its groups and state.
        state = dict(self.__dict__)
        state["_device"] = _nobody
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        torch.optim.Optimizer.__setstate__(self, state)  # type: ignore[arg-type]

    def __copy__(self) -> "Optimizer":
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__getstate__())
        made.variable_attrs = copy.deepcopy(self.variable_attrs)
        return made


def _nobody() -> None:
    return None


def _types_checked(**types: torch.dtype | None) -> dict[str, torch.dtype]:
    for value in types.values():
        assert value in _ALLOWED_TYPES, "Accumulation types must be either torch.float32 or torch.float16"
    return {name: torch.float32 if value is None else value for name, value in types.items()}


def _given(**values: Any) -> dict[str, Any]:
    """Arguments that were passed; the others keep torch's defaults, as constants."""
    return {name: value for name, value in values.items() if value is not None}


def _number(value: float | None, default: float) -> float:
    return default if value is None else float(value)


class SGD(Optimizer, torch.optim.SGD):
    """Stochastic gradient descent. Arguments left None take torch's defaults and cannot change after compilation."""

    def __init__(
        self, params: Iterable, lr: float, momentum: float | None = None, dampening: float | None = None,
        weight_decay: float | None = None, nesterov: bool | None = None, maximize: bool | None = None,
        foreach: bool | None = None, differentiable: bool | None = None, loss_scaling: float | None = None,
        velocity_scaling: float | None = None, use_combined_accum: bool | None = None,
        accum_type: torch.dtype | None = None, velocity_accum_type: torch.dtype | None = None,
        max_grad_norm: float | None = None,
    ) -> None:  # fmt: skip
        Optimizer.__init__(self)
        group = _given(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov)
        torch.optim.SGD.__init__(self, params, **group)
        names = ("lr", "momentum", "dampening", "weight_decay", "nesterov", "velocity_scaling", "loss_scaling")
        given = {**group, **_given(loss_scaling=loss_scaling, velocity_scaling=velocity_scaling)}
        self.variable_attrs = VariableAttributes(given, names)
        self.loss_scaling = _number(loss_scaling, 1.0)
        self.use_combined_accum = bool(use_combined_accum)
        self.max_grad_norm = _number(max_grad_norm, float("inf"))
        types = _types_checked(accum_type=accum_type, velocity_accum_type=velocity_accum_type)
        self.accum_type, self.velocity_accum_type = types["accum_type"], types["velocity_accum_type"]
        if velocity_scaling is not None and not self.use_combined_accum:
            logger.warning("velocity_scaling is ignored: it only applies when use_combined_accum is True")
        for held in (self.defaults, *self.param_groups):
            held.setdefault("velocity_scaling", _number(velocity_scaling, 1.0))


class _AdamLike(Optimizer):
    """The extra attributes of the optimizers with two moments."""

    accum_type: torch.dtype
    first_order_momentum_accum_type: torch.dtype
    second_order_momentum_accum_type: torch.dtype

    def _set_types(
        self, loss_scaling: float | None, accum_type: torch.dtype | None, first: torch.dtype | None,
        second: torch.dtype | None,
    ) -> None:  # fmt: skip
        self.loss_scaling = _number(loss_scaling, 1.0)
        types = _types_checked(
            accum_type=accum_type, first_order_momentum_accum_type=first, second_order_momentum_accum_type=second
        )
        for name, value in types.items():
            setattr(self, name, value)


_ADAM_NAMES = ("lr", "betas", "eps", "weight_decay", "amsgrad", "loss_scaling")


def _refuse_amsgrad(amsgrad: bool | None) -> None:
    if amsgrad:
        raise ValueError("Only non-amsgrad Adam/AdamW optimizers are supported.")


class Adam(_AdamLike, torch.optim.Adam):
    """Adam. Arguments left None take torch's defaults and cannot change after compilation."""

    def __init__(
        self, params: Iterable, lr: float | None = None, betas: tuple[float, float] | None = None,
        eps: float | None = None, weight_decay: float | None = None, amsgrad: bool | None = None,
        foreach: bool | None = None, maximize: bool | None = None, capturable: bool | None = None,
        differentiable: bool | None = None, fused: bool | None = None, loss_scaling: float | None = None,
        accum_type: torch.dtype | None = None, first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None, max_grad_norm: float | None = None,
    ) -> None:  # fmt: skip
        _refuse_amsgrad(amsgrad)
        Optimizer.__init__(self)
        group = _given(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        torch.optim.Adam.__init__(self, params, **group)
        self.variable_attrs = VariableAttributes({**group, **_given(loss_scaling=loss_scaling)}, _ADAM_NAMES)
        self._set_types(loss_scaling, accum_type, first_order_momentum_accum_type, second_order_momentum_accum_type)
        self.max_grad_norm = _number(max_grad_norm, float("inf"))


class AdamW(_AdamLike, torch.optim.AdamW):
    """Adam with decoupled weight decay. Arguments left None take torch's defaults, as constants."""

    def __init__(
        self, params: Iterable, lr: float | None = None, betas: tuple[float, float] | None = None,
        eps: float | None = None, weight_decay: float | None = None, amsgrad: bool | None = None,
        maximize: bool | None = None, foreach: bool | None = None, capturable: bool | None = None,
        differentiable: bool | None = None, fused: bool | None = None, loss_scaling: float | None = None,
        bias_correction: bool | None = None, accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None, max_grad_norm: float | None = None,
    ) -> None:  # fmt: skip
        _refuse_amsgrad(amsgrad)
        Optimizer.__init__(self)
        group = _given(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        torch.optim.AdamW.__init__(self, params, **group)
        self.variable_attrs = VariableAttributes({**group, **_given(loss_scaling=loss_scaling)}, _ADAM_NAMES)
        self._set_types(loss_scaling, accum_type, first_order_momentum_accum_type, second_order_momentum_accum_type)
        self.bias_correction = True if bias_correction is None else bias_correction
        self.max_grad_norm = _number(max_grad_norm, float("inf"))


class RMSprop(_AdamLike, torch.optim.RMSprop):
    """RMSprop. Arguments left None take torch's defaults and cannot change after compilation."""

    def __init__(
        self, params: Iterable, lr: float | None = None, alpha: float | None = None, eps: float | None = None,
        weight_decay: float | None = None, momentum: float | None = None, centered: bool | None = None,
        foreach: bool | None = None, maximize: bool | None = None, differentiable: bool | None = None,
        loss_scaling: float | None = None, accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None, use_tf_variant: bool | None = None,
    ) -> None:  # fmt: skip
        Optimizer.__init__(self)
        group = _given(lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum, centered=centered)
        torch.optim.RMSprop.__init__(self, params, **group)
        names = ("lr", "momentum", "weight_decay", "alpha", "eps", "centered", "loss_scaling")
        self.variable_attrs = VariableAttributes({**group, **_given(loss_scaling=loss_scaling)}, names)
        self._set_types(loss_scaling, accum_type, first_order_momentum_accum_type, second_order_momentum_accum_type)
        self.use_tf_variant = bool(use_tf_variant)


class LAMB(_AdamLike, torch.optim.Optimizer):
    """Layer-wise adaptive moments, for large batches. Arguments left None take defaults, as constants."""

    def __init__(
        self, params: Iterable, lr: float | None = None, betas: tuple[float, float] | None = None,
        eps: float | None = None, weight_decay: float | None = None, bias_correction: bool | None = None,
        loss_scaling: float | None = None, max_weight_norm: float | None = None,
        accum_type: torch.dtype | None = None, first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
    ) -> None:  # fmt: skip
        Optimizer.__init__(self)
        group = _given(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, max_weight_norm=max_weight_norm)
        usual = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2, "max_weight_norm": 65500.0}
        torch.optim.Optimizer.__init__(self, params, {**usual, **group})
        names = (*usual, "loss_scaling")
        self.variable_attrs = VariableAttributes({**group, **_given(loss_scaling=loss_scaling)}, names)
        self._set_types(loss_scaling, accum_type, first_order_momentum_accum_type, second_order_momentum_accum_type)
        self.bias_correction = True if bias_correction is None else bias_correction

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """One update on the host."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._step_one(weight, group)
        return loss

    def _step_one(self, weight: torch.Tensor, group: dict[str, Any]) -> None:
        state = self.state[weight]
        if not state:
            state.update(step=0, first=torch.zeros_like(weight), second=torch.zeros_like(weight))
        one, two = group["betas"]
        state["step"] += 1
        first = state["first"].mul_(one).add_(weight.grad, alpha=1 - one)
        second = state["second"].mul_(two).addcmul_(weight.grad, weight.grad, value=1 - two)
        if self.bias_correction:
            first, second = first / (1 - one ** state["step"]), second / (1 - two ** state["step"])
        direction = first / (second.sqrt() + group["eps"]) + group["weight_decay"] * weight
        size, length = weight.norm().clamp(max=group["max_weight_norm"]), direction.norm()
        trust = 1.0 if size == 0 or length == 0 else float(size / length)
        weight.add_(direction, alpha=-group["lr"] * trust)
