"""Counts of values, in a number of places that is known when a model is compiled."""

import torch

from openipu.torch.exceptions import Error


def bincount(input: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> torch.Tensor:
    """`torch.bincount` with as many places as `minlength` says; values beyond them are not counted."""
    if minlength < 1:
        raise Error(
            "torch.bincount needs minlength on the IPU: without it the shape of its result depends on the values. Pass "
            "the number of different values as minlength."
        )
    if weights is None:
        kind = torch.int64
    else:
        kind = weights.dtype if weights.is_floating_point() else torch.float32
    counted = torch.ones_like(input, dtype=kind) if weights is None else weights.to(kind)
    inside = (input >= 0) & (input < minlength)
    places = torch.zeros(minlength, dtype=kind, device="cpu")
    return places.scatter_add(0, input.clamp(0, minlength - 1).long(), counted * inside)
