"""Keeps TensorFlow's C++ libraries from printing about CUDA and CPU instructions in programs that use IPUs."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType

from openipu import environment

# While these are loaded, lines are printed that no variable silences.
LOUD = (
    "tensorflow.python.platform._pywrap_cpu_feature_guard",
    "tensorflow.python.profiler.internal._pywrap_profiler_plugin",
)
NOISE = (b"All log messages before absl::InitializeLog()", b"cudart_stub.cc")


def begin(before_import: dict[str, Callable[[ModuleSpec], None]]) -> None:
    """Asks for quiet before TensorFlow is imported, unless the user has said how much it should print.

    Args:
      before_import: what the import hook does to a module's spec before the module is loaded, by name.
    """
    if environment.quiet_libraries():
        before_import.update(dict.fromkeys(LOUD, hush))


def hush(spec: ModuleSpec) -> None:
    """Leaves out the noise while the module of `spec` is loaded."""
    loader = spec.loader
    assert loader is not None

    def create_module(spec: ModuleSpec) -> ModuleType | None:
        del loader.create_module  # The loader stays the one that was found, and unchanged.
        with without_noise():
            return loader.create_module(spec)

    loader.create_module = create_module


@contextlib.contextmanager
def without_noise() -> Iterator[None]:
    """Passes on what is written to file descriptor 2 meanwhile, afterwards, without the lines of `NOISE`."""
    try:
        saved = os.dup(2)
    except OSError:  # There is no standard error, so nothing can be heard.
        yield
        return
    with tempfile.TemporaryFile() as heard:
        os.dup2(heard.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            heard.seek(0)
            kept = b"".join(line for line in heard if not any(noise in line for noise in NOISE))
            if kept:
                os.write(2, kept)
