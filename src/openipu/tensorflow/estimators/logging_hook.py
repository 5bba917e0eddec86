"""`IPULoggingTensorHook`: shows values that a program leaves in an outfeed."""

import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from openipu.tensorflow.feeds.outfeed import IPUOutfeedMode, IPUOutfeedQueue

log = logging.getLogger("openipu.tensorflow")

LoggingMode = IPUOutfeedMode


class IPULoggingTensorHook(tf.compat.v1.train.SessionRunHook):
    """Logs tensors of a model that is compiled for the IPU.

    Args:
      every_n_iter: log after so many runs of the session.
      every_n_secs: or after so many seconds.
      at_end: log at the end; without the other two, only then.
      formatter: makes the text of a dict of values by name.
      logging_mode: the last value, or all since the last time.
      feed_name, replication_factor: of older programs, ignored.
    """

    LoggingMode = LoggingMode

    def __init__(
        self,
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable | None = None,
        logging_mode: IPUOutfeedMode = LoggingMode.LAST,
        feed_name: str | None = None,
        replication_factor: int | None = None,
    ) -> None:
        only_at_end = at_end and every_n_iter is None and every_n_secs is None
        if not only_at_end and (every_n_iter is None) == (every_n_secs is None):
            raise ValueError("exactly one of every_n_iter and every_n_secs must be provided.")
        if every_n_iter is not None and every_n_iter < 1:
            raise ValueError(f"every_n_iter must be positive. Received: every_n_iter={every_n_iter}.")
        self._every_n_iter, self._every_n_secs, self._at_end = every_n_iter, every_n_secs, at_end
        self._formatter = formatter
        self._outfeed = IPUOutfeedQueue(logging_mode)
        self._dequeue: Any = None
        self._enqueued = False
        self._runs = 0
        self._before: float | None = None

    def log(self, tensors: Any) -> tf.Operation:
        """Log these, a tensor or a list or dict of them; called once, inside of the model function."""
        if self._enqueued:
            raise RuntimeError("Cannot use this hook object's log function more than once.")
        self._enqueued = True
        if isinstance(tensors, dict):
            named = tensors
        else:
            listed = tensors if isinstance(tensors, (list, tuple)) else [tensors]
            named = {_name(tensor): tensor for tensor in listed}
        return self._outfeed.enqueue(named)

    def begin(self) -> None:
        """Called by the session, when the graph is built."""
        if not self._enqueued:
            raise RuntimeError("This hook object's log function was not called.")
        self._dequeue = self._outfeed.dequeue()
        self._runs, self._before = 0, None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Called by the session after every run."""
        self._runs += 1
        now = time.monotonic()
        due = self._every_n_iter is not None and (self._runs - 1) % self._every_n_iter == 0
        if self._every_n_secs is not None:
            due = self._before is None or now - self._before >= self._every_n_secs
        if due:
            self._show(run_context.session, None if self._before is None else now - self._before)
            self._before = now

    def end(self, session: Any) -> None:
        """Called by the session before it closes."""
        if self._at_end:
            self._show(session, None)

    def _show(self, session: Any, seconds: float | None) -> None:
        values = session.run(self._dequeue)
        if self._formatter is not None:
            log.info(self._formatter(values))
            return
        with np.printoptions(suppress=True):
            text = ", ".join(f"{name} = {value}" for name, value in values.items())
        log.info("%s (%.3f sec)", text, seconds) if seconds is not None else log.info(text)


def _name(tensor: tf.Tensor) -> str:
    return tensor.name.partition(":")[0] if hasattr(tensor, "name") else "value"
