"""Beam search over the outputs of connectionist temporal classification."""

import heapq
from typing import Any

import jax
import numpy as np
import torch

from openipu.torch.aten.registry import lowering
from openipu.torch.exceptions import Error
from openipu.torch.tracing import isRunningOnIpu

_NEVER = -np.inf


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
    steps, batch, _ = probs.shape
    shapes = (
        jax.ShapeDtypeStruct((batch, top_paths), probs.dtype),
        jax.ShapeDtypeStruct((batch, top_paths), np.int32),
        jax.ShapeDtypeStruct((batch, top_paths, steps), np.int32),
    )

    def call(values: Any, ends: Any) -> tuple[np.ndarray, ...]:
        values, ends = np.asarray(values), np.asarray(ends)
        score = np.full((batch, top_paths), _NEVER, values.dtype)
        length = np.zeros((batch, top_paths), np.int32)
        path = np.full((batch, top_paths, steps), blank, np.int32)
        for item in range(batch):
            found = beam_search(values[: int(ends[item]), item].astype(np.float64), blank, beam_width)
            for rank, (labels, value) in enumerate(found[:top_paths]):
                score[item, rank], length[item, rank] = value, len(labels)
                path[item, rank, : len(labels)] = labels
        return score, length, path

    return tuple(jax.pure_callback(call, shapes, probs, lengths, vmap_method="sequential"))


def beam_search(log_probs: np.ndarray, blank: int, width: int) -> list[tuple[tuple[int, ...], float]]:
    """Label sequences and their log-probabilities, likeliest first.

    Args:
      log_probs: of every class at every time, [time, classes].
      blank: the class that means no label.
      width: how many sequences are followed at a time.
    """
    # For every sequence the log-probability of the alignments that end in a blank, and of those that do not.
    beams: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, _NEVER)}
    for frame in log_probs:
        grown: dict[tuple[int, ...], tuple[float, float]] = {}

        def add(labels: tuple[int, ...], blanked: float, labelled: float, into: dict = grown) -> None:
            old = into.get(labels, (_NEVER, _NEVER))
            into[labels] = (float(np.logaddexp(old[0], blanked)), float(np.logaddexp(old[1], labelled)))

        for labels, (blanked, labelled) in beams.items():
            total = np.logaddexp(blanked, labelled)
            add(labels, total + frame[blank], _NEVER)
            for label in range(len(frame)):
                if label == blank:
                    continue
                if labels and labels[-1] == label:
                    add(labels, _NEVER, labelled + frame[label])
                    add((*labels, label), _NEVER, blanked + frame[label])
                else:
                    add((*labels, label), _NEVER, total + frame[label])
        best = heapq.nlargest(width, grown.items(), key=lambda item: np.logaddexp(*item[1]))
        beams = dict(best)
    scored = [(labels, float(np.logaddexp(*value))) for labels, value in beams.items()]
    return sorted(scored, key=lambda item: -item[1])


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
