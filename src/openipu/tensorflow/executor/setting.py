"""How programs run on a TensorFlow IPU device: the flags and the configuration as the core's setting."""

import contextlib
import datetime
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from openipu import environment
from openipu.compiler import Cache, progress_bar
from openipu.errors import IndexRangeError, InvalidNumberError
from openipu.program import Program
from openipu.report.watching import watch_for
from openipu.runtime import Results, Session, Setting, Synthetic
from openipu.tensorflow.configuration import devices
from openipu.tensorflow.configuration.ipu_options import options_of, with_keywords
from openipu.tensorflow.exceptions import as_tensorflow


def setting_of(
    ordinal: int,
    synthetic: Synthetic,
    pipelined: bool = False,
    keywords: Mapping[str, Any] | None = None,
    feed: Mapping[str, Any] | None = None,
) -> Setting:
    """How programs run on `/device:IPU:<ordinal>`; one that is never attached compiles for the cache alone.

    Args:
      ordinal: the device.
      synthetic: which data never goes between host and device.
      pipelined: the program is a pipeline.
      keywords: what the pipeline, or gradient accumulation, was told beyond the plan.
      feed: what the feed to the device was told.
    """
    cache, offline = executable_cache(), devices.precompiles(ordinal)
    if offline and cache is None:
        raise tf.errors.FailedPreconditionError(
            None,
            None,
            "DeviceConnectionType.PRE_COMPILE keeps executables in the executable cache, which has no folder. "
            "Set TF_POPLAR_FLAGS=--executable_cache_path=<folder>.",
        )
    return Setting(
        cache,
        offline,
        synthetic,
        devices.traps(),
        lambda: devices.require_attached(ordinal),
        watch_for("tensorflow", _engine_options(), _report_folder),
        with_keywords(options_of(devices.active_config(), pipelined), keywords or {}, feed or {}),
    )


def _engine_options() -> dict[str, str]:
    """What the configuration and POPLAR_ENGINE_OPTIONS say; the variable goes first, as it does for Poplar."""
    config = devices.active_config()
    return {**(config.compilation_poplar_options if config is not None else {}), **environment.poplar_engine_options()}


def _report_folder(program: Program) -> str:
    """One for every compiled program, named as the original's."""
    now = datetime.datetime.now()
    return f"tf_report__{now:%Y-%m-%d__%H-%M-%S}.{now:%f}"[:-3] + f"__{os.getpid()}"


def run(session: Session, feeds: Any, seeds: Sequence[int]) -> Results:
    """One execution; a floating-point exception is what the device's are to TensorFlow."""
    try:
        with as_tensorflow():
            return session.run(feeds, seeds)
    except InvalidNumberError as error:
        site: Any = error.site
        where = "in a weight update" if site.update else f"in {site.scope or site.operation} ({site.operation})"
        message = (
            f"[Poplar][Execute engine] application_runtime_error: [Recovery action: IPU_RESET] A floating-point "
            f"exception happened {where}. IPU will be reset the next time a program is executed."
        )
        raise tf.errors.InternalError(None, None, message) from None


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Labels and indices that name nothing are to TensorFlow what its own operations make of them."""
    try:
        yield
    except IndexRangeError as error:
        raise tf.errors.InvalidArgumentError(None, None, str(error)) from None


def executable_cache() -> Cache | None:
    """Where executables are kept (`--executable_cache_path`, else poprun's for all instances, else OPENIPU_CACHE)."""
    flags = environment.poplar_flags()
    folder = flags.executable_cache_path or environment.shared_cache_dir() or environment.cache_dir()
    return Cache(folder) if folder else None


def showing_compilation(name: str) -> contextlib.AbstractContextManager:
    """Shows the compilation of a module to the user, as `--show_progress_bar` says."""
    wish = {"true": True, "false": False, "auto": None}[environment.poplar_flags().show_progress_bar]
    return progress_bar.showing(name, wish, executable_cache() is not None)
