"""Beam search over the outputs of connectionist temporal classification."""

from typing import Any

import jax
import torch

from openipu.compiler import beam_search
from openipu.torch.aten.registry import lowering
from openipu.torch.exceptions import Error
from openipu.torch.tracing import isRunningOnIpu


@torch.library.custom_op("openipu::ctc_decode", mutates_args=())
def _decode(
    probs: torch.Tensor, lengths: torch.Tensor, blank: int, beam_width: int, top_paths: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The likeliest paths; zeros on the host."""
    return _empty(probs, top_paths)


@_decode.register_fake
def _decode_fake(probs: Any, lengths: Any, blank: int, beam_width: int, top_paths: int) -> tuple:
    return _empty(probs, top_paths)


def _empty(probs: torch.Tensor, top_paths: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    steps, batch, _ = probs.shape
    return (
        probs.new_zeros((batch, top_paths)),
        torch.zeros((batch, top_paths), dtype=torch.int32, device="cpu"),
        torch.zeros((batch, top_paths, steps), dtype=torch.int32, device="cpu"),
    )


@lowering("openipu::ctc_decode")
def _decode_lowering(probs: jax.Array, lengths: jax.Array, blank: int, beam_width: int, top_paths: int) -> tuple:
    return beam_search.decode(probs, lengths, blank, beam_width, top_paths)


def ctc_beam_search_decoder(
    probs: torch.Tensor, lengths: torch.Tensor, blank: int = 0, beam_width: int = 100, top_paths: int = 1
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The likeliest label sequences of every example, best first; zeros on the host.

    Args:
      probs: log-probabilities, [time, batch, classes].
      lengths: the number of times that count, for every example.
      blank: the class that means no label.
      beam_width: how many sequences are followed at a time.
      top_paths: how many are returned.

    Returns:
      Log-probabilities [batch, paths], lengths [batch, paths] and labels [batch, paths, time].
    """
    if probs.dim() != 3:
        raise Error(f"Incorrect shape for first input to CTC beam search decoder. Expected 3 dims, got {probs.dim()}.")
    if not isRunningOnIpu():
        return _empty(probs, top_paths)
    return _decode(probs, lengths, blank, beam_width, top_paths)
