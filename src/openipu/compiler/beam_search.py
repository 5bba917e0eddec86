"""Beam search over the outputs of connectionist temporal classification, on the host's side of a program."""

import heapq
from typing import Any

import jax
import numpy as np

_NEVER = -np.inf


def decode(log_probs: jax.Array, lengths: jax.Array, blank: int, beam_width: int, top_paths: int) -> tuple:
    """`decode_on_host` inside a program."""
    steps, batch, _ = log_probs.shape
    shapes = (
        jax.ShapeDtypeStruct((batch, top_paths), log_probs.dtype),
        jax.ShapeDtypeStruct((batch, top_paths), np.int32),
        jax.ShapeDtypeStruct((batch, top_paths, steps), np.int32),
    )

    def call(values: Any, ends: Any) -> tuple[np.ndarray, ...]:
        return decode_on_host(np.asarray(values), np.asarray(ends), blank, beam_width, top_paths)

    return tuple(jax.pure_callback(call, shapes, log_probs, lengths, vmap_method="sequential"))


def decode_on_host(
    log_probs: np.ndarray, lengths: np.ndarray, blank: int, beam_width: int, top_paths: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The likeliest label sequences of every example, best first.

    Args:
      log_probs: [time, batch, classes].
      lengths: the number of times that count, for every example.
      blank: the class that means no label.
      beam_width: how many sequences are followed at a time.
      top_paths: how many are returned.

    Returns:
      Log-probabilities [batch, paths], lengths [batch, paths] and labels [batch, paths, time].
    """
    steps, batch, _ = log_probs.shape
    score = np.full((batch, top_paths), _NEVER, log_probs.dtype)
    length = np.zeros((batch, top_paths), np.int32)
    path = np.full((batch, top_paths, steps), blank, np.int32)
    for item in range(batch):
        found = beam_search(log_probs[: int(lengths[item]), item].astype(np.float64), blank, beam_width)
        for rank, (labels, value) in enumerate(found[:top_paths]):
            score[item, rank], length[item, rank] = value, len(labels)
            path[item, rank, : len(labels)] = labels
    return score, length, path


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
