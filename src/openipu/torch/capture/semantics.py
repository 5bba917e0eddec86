"""What torch functions mean while a module is captured for an IPU: losses marked, weights cast, devices one."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from openipu.torch.boundary import PACKING
from openipu.torch.capture import constants
from openipu.torch.exceptions import Error, UnsupportedError
from openipu.torch.logger import logger
from openipu.torch.ops import counting, loss, norms

# Functions whose weights follow the type of the activations, and where the weights are among their arguments.
_WEIGHTED: dict[Callable, tuple[tuple[int, str], ...]] = {
    **dict.fromkeys(
        (F.linear, F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d),
        ((1, "weight"), (2, "bias")),
    ),
    F.layer_norm: ((2, "weight"), (3, "bias")),
    F.group_norm: ((2, "weight"), (3, "bias")),
    F.instance_norm: ((3, "weight"), (4, "bias")),
}
# Functions that make tensors, on the IPU whatever the default device is.
_FACTORIES = {
    getattr(torch, name)
    for name in (
        "arange", "empty", "full", "full_like", "linspace", "logspace", "ones", "rand", "randint", "randn", "randperm",
        "range", "tensor", "zeros", "zeros_like", "normal",
    )
}  # fmt: skip
_SHOWN = {torch.Tensor.__repr__, torch.Tensor.__format__}
_ITEM = {torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.__bool__, torch.Tensor.__float__, torch.Tensor.__int__}


class IpuSemantics(TorchFunctionMode):
    """Redirects the functions that behave differently on an IPU; active while a module is captured.

    Args:
      strided: whether the channels of a group of a group norm lie apart rather than side by side.
    """

    def __init__(self, strided: bool = False) -> None:
        super().__init__()
        self._strided = strided
        self._forced: set[str] = set()

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = dict(kwargs or {})
        # Bodies of loops and branches are traced by torch's compiler, this function with them.
        inner = torch.compiler.is_dynamo_compiling()
        if not inner and func not in _FACTORIES and loss.marked(func) is None and constants.only(args, kwargs):
            known, value = constants.compute(func, args, kwargs)
            if known:
                return value
            if func is torch.Tensor.to:
                args = (args[0].clone(), *args[1:])
        if func in _ITEM:
            name = "item" if func is torch.Tensor.item else func.__name__.strip("_")
            raise Error(
                f"aten::{name} is only supported in eager mode, but was intercepted in a static graph. This means an "
                "operation in the graph tried to convert an IPU tensor to a Python value, or to decide by it."
            )
        if func in _SHOWN:
            return "<unavailable>"
        if _moves_to_cpu(func, args, kwargs):
            raise Error(
                'Illegal move to CPU (via `.to("cpu")`) when using the dispatcher. Instead, return this output as an '
                "IPU tensor."
            )
        if func is torch.Tensor.numpy:
            raise Error(
                "An IPU tensor cannot become a NumPy array in forward: it has no values while the model is compiled. "
                "Return it, and convert what the executor returns."
            )
        if func in (F.one_hot, torch.ops.aten.one_hot) and (kwargs.get("num_classes", -1), *args[1:2])[-1] == -1:
            raise Error("OneHot num classes must be specified and must be constant.")
        if func in (torch.bincount, torch.Tensor.bincount):
            return counting.bincount(*args, **kwargs)
        if func in PACKING:
            raise UnsupportedError(
                "Packed sequences are not supported: their layout depends on the lengths, which are data. Pass padded "
                "sequences to the recurrent layer, and mask what is beyond the lengths."
            )
        if func in _FACTORIES and "device" not in kwargs:
            self._force(func, args, kwargs)
        args, kwargs = _on_one_device(func, args, kwargs)
        if func is F.batch_norm:
            return norms.batch_norm(*args, **kwargs)
        if func in _WEIGHTED:
            args, kwargs = _cast_weights(_WEIGHTED[func], args, kwargs)
        if func is F.group_norm and self._strided:
            return norms.strided_group_norm(*args, **kwargs)
        return (loss.marked(func) or func)(*args, **kwargs)

    def _force(self, func: Callable, args: tuple, kwargs: dict) -> None:
        """Say once for every function that its tensors are made on the IPU."""
        name = func.__name__
        given = any(isinstance(value, torch.Tensor) for value in (*args, *kwargs.values()))
        if name in self._forced or (name == "normal" and given):
            return
        self._forced.add(name)
        logger.warning("No device set in torch.%s(): forcing to IPU", name)


def _moves_to_cpu(func: Callable, args: tuple, kwargs: dict) -> bool:
    if func is not torch.Tensor.to:
        return func is torch.Tensor.cpu
    named = [value for value in (*args[1:], kwargs.get("device")) if isinstance(value, str | torch.device)]
    return any(torch.device(value).type == "cpu" for value in named)


def _on_one_device(func: Callable, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The arguments with the device "ipu" replaced by the one that captured tensors are on."""
    if "device" in kwargs and constants.is_ipu(kwargs["device"]):
        kwargs["device"] = "cpu"
    if func is torch.Tensor.to:
        args = tuple(torch.device("cpu") if constants.is_ipu(value) else value for value in args)
    return args, kwargs


def _cast_weights(places: tuple[tuple[int, str], ...], args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The arguments with weights in the type of the activation, in which such operations compute on an IPU."""
    wanted = args[0].dtype if args else kwargs["input"].dtype
    halves = (torch.float16, torch.float32)
    changed = list(args)
    for position, name in places:
        value = changed[position] if position < len(changed) else kwargs.get(name)
        if isinstance(value, torch.Tensor) and value.dtype != wanted and {value.dtype, wanted} <= set(halves):
            if position < len(changed):
                changed[position] = value.to(wanted)
            else:
                kwargs[name] = value.to(wanted)
    return tuple(changed), kwargs
