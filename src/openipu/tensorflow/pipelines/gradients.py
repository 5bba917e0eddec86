"""The gradients of one micro-batch of a pipeline, and those that are captured on the way."""

import contextlib
import inspect
from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def gradients_of(described: Any, used: Sequence[tf.Variable]) -> list[tuple[tf.Tensor, Any]]:
    """Gradients and their variables, those without a gradient left out; `used` are the variables of the stages."""
    with described.gradient_capture_context or contextlib.nullcontext():
        pairs = _pairs(described, used)
    found = [(tf.convert_to_tensor(gradient), variable) for gradient, variable in pairs if gradient is not None]
    if not found:
        raise ValueError("No gradients provided for any variable. Check that the loss depends on the variables.")
    return found


def _pairs(described: Any, used: Sequence[tf.Variable]) -> list[tuple[Any, Any]]:
    opt, loss = described.opt, described.loss
    if isinstance(opt, tf.compat.v1.train.Optimizer):
        named = described.compute_gradients_kwargs
        if not described.compute_gradients_args and not tf.compat.v1.trainable_variables():
            # Variables that were made before the function are in no collection of its graph.
            named = {"var_list": used, **named}
        pairs = opt.compute_gradients(loss, *described.compute_gradients_args, **named)
    elif described.tape is not None:
        variables = described.tape.watched_variables()
        pairs = list(zip(described.tape.gradient(loss, variables), variables, strict=True))
    else:
        plain = [getattr(variable, "value", variable) for variable in described.variables]
        plain = [v if isinstance(v, tf.Variable) else w for v, w in zip(plain, described.variables, strict=True)]
        pairs = list(zip(tf.gradients(loss, plain), described.variables, strict=True))
    return pairs


def captured_gradients(described: Any) -> dict[str, Any]:
    """The gradients that were captured on the way, by their tags."""
    source = described.gradient_capture_context or described.tape
    return dict(getattr(source, "captured_gradients", {}))


def takes_captured(opt: Any) -> bool:
    """Whether an optimizer wants captured gradients along with the others."""
    parameter = inspect.signature(opt.apply_gradients).parameters.get("captured_grads")
    named = parameter is not None and parameter.kind is parameter.KEYWORD_ONLY
    return named or bool(getattr(opt, "supports_captured_grads", False))
