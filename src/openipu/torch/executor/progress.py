"""Compilation as PopTorch shows it: a tqdm bar called "Graph compilation"."""

import contextlib
from typing import TextIO

from tqdm import tqdm

from openipu.compiler import progress_bar
from openipu.compiler.progress import PHASES, Progress
from openipu.torch.options import Options


class GraphCompilation:
    """One bar, a piece longer for every phase."""

    def __init__(self, stream: TextIO, after: str = PHASES[0]) -> None:
        self._stream = stream
        self._first = PHASES.index(after)
        self._bar: tqdm | None = None

    def update(self, progress: Progress) -> None:
        """A phase began, or all are complete."""
        if progress.done < self._first:
            return
        if self._bar is None:
            self._bar = tqdm(total=100, desc="Graph compilation", leave=True, file=self._stream)
            self._bar.start_t -= progress.seconds
        self._bar.set_postfix_str("" if progress.finished else progress.phase or "", refresh=False)
        # Drawn at once: `update` leaves out what comes soon after the last, and the phase that takes long may be that.
        self._bar.n = 100 * progress.done // len(PHASES)
        self._bar.refresh()

    def close(self) -> None:
        """Leave the line."""
        if self._bar is not None:
            self._bar.close()


def showing_compilation(name: str, options: Options, cached: bool) -> contextlib.AbstractContextManager:
    """Shows the compilation of a module, unless the options do not want it.

    Args:
      name: of the module.
      options: the executor's.
      cached: whether a finished executable may be found; then capture is not shown.
    """
    wanted = None if options._show_compilation_progress_bar else False
    return progress_bar.showing(name, wanted, cached, GraphCompilation)
