"""Normalisation over the batch where torch's own cannot be captured, or treats types differently."""

import contextlib
from collections.abc import Iterator

import torch
import torch.nn.functional as F

from openipu.torch.boundary import BatchNorm, check_batch_norm_input

Optional = torch.Tensor | None


def batch_norm(
    input: torch.Tensor,
    running_mean: Optional,
    running_var: Optional,
    weight: Optional = None,
    bias: Optional = None,
    training: bool = False,
    momentum: float | torch.Tensor = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """`torch.nn.functional.batch_norm` with weights and statistics of any floating type, and a momentum that may vary.

    The result has the type of the input; statistics keep theirs.
    """
    stats = (running_mean, running_var)
    mixed = any(t is not None and t.dtype != input.dtype for t in (*stats, weight, bias))
    if not mixed and not isinstance(momentum, torch.Tensor):
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    scale, shift = (None if t is None else t.to(input.dtype) for t in (weight, bias))
    if not training:
        assert running_mean is not None and running_var is not None
        known = (running_mean.to(input.dtype), running_var.to(input.dtype))
        return F.batch_norm(input, *known, scale, shift, False, 0.0, eps)
    if running_mean is not None and running_var is not None:
        _move(input.detach(), running_mean, running_var, momentum)
    return F.batch_norm(input, None, None, scale, shift, True, 0.0, eps)


@torch.no_grad()
def _move(input: torch.Tensor, mean: torch.Tensor, var: torch.Tensor, momentum: float | torch.Tensor) -> None:
    """Move running statistics towards those of a batch."""
    data = input.float()
    axes = [axis for axis in range(data.dim()) if axis != 1]
    for running, value in ((mean, data.mean(axes)), (var, data.var(axes))):
        running.copy_((running.float() * (1 - momentum) + value * momentum).to(running.dtype))


def strided_group_norm(
    input: torch.Tensor, num_groups: int, weight: Optional = None, bias: Optional = None, eps: float = 1e-5
) -> torch.Tensor:
    """Group norm whose group of a channel is the channel's number modulo the number of groups."""
    batch, channels, *space = input.shape
    cut = input.reshape(batch, channels // num_groups, num_groups, *space).transpose(1, 2)
    made = F.group_norm(cut.reshape(input.shape), num_groups, None, None, eps)
    made = made.reshape(batch, num_groups, channels // num_groups, *space).transpose(1, 2).reshape(input.shape)
    shape = (1, channels, *(1 for _ in space))
    if weight is not None:
        made = made * weight.reshape(shape)
    return made if bias is None else made + bias.reshape(shape)


def _counting_batches(model: torch.nn.Module) -> Iterator[tuple[str, BatchNorm]]:
    """Modules that keep running statistics and count the batches these come from."""
    for name, module in model.named_modules():
        if not isinstance(module, BatchNorm) or not module.training:
            continue
        if module.track_running_stats and module.num_batches_tracked is not None:
            yield name, module


def counters(model: torch.nn.Module) -> set[str]:
    """The names of the counts of batches: state of the device, though they are integers."""
    return {f"{name}.num_batches_tracked" if name else "num_batches_tracked" for name, _ in _counting_batches(model)}


@contextlib.contextmanager
def cumulative(model: torch.nn.Module) -> Iterator[None]:
    """While a model is captured, let plain averages over all batches count on the device: torch's code looks there."""
    found = [module for _, module in _counting_batches(model) if module.momentum is None]
    for module in found:
        module.forward = _counting(module)
    try:
        yield
    finally:
        for module in found:
            del module.forward


def _counting(module: BatchNorm):  # noqa: ANN202
    def forward(input: torch.Tensor) -> torch.Tensor:
        check_batch_norm_input(module, input)
        assert module.num_batches_tracked is not None
        module.num_batches_tracked.add_(1)
        share = 1 / module.num_batches_tracked.float()
        return batch_norm(
            input,
            module.running_mean,
            module.running_var,
            module.weight,
            module.bias,
            True,
            share,
            module.eps,
        )

    return forward
