"""Poplar's engine options: the JSON in POPLAR_ENGINE_OPTIONS, and the keys that are known."""

import difflib
import functools
import logging
from collections.abc import Iterable

from openipu.environment.variable import declare

POPLAR = "Poplar"

_options = declare(
    "POPLAR_ENGINE_OPTIONS",
    POPLAR,
    "Options of the engine; the table below has the keys. Others are warned of.",
    values='a JSON object, such as `{"autoReport.all": "true"}`',
)

# Key: its meaning. A key that ends in a dot stands for all keys that begin with it.
KEYS = {
    "autoReport.all": "write every part of the report",
    "autoReport.directory": "where reports go",
    "autoReport.executionProfileProgramRunCount": "how many executions the report covers",
    "autoReport.outputArchive": "add the executable to the report",
    "autoReport.outputDebugInfo": "add the origin of operations to the report",
    "autoReport.outputExecutionProfile": "add cycles to the report",
    "autoReport.outputGraphProfile": "add memory to the report",
    "autoReport.outputLoweredVars": "add the places of variables to the report",
    "autoReport.outputSerializedGraph": "add the graph to the report",
    "autoReport.streamAtEachRun": "write the report while the program runs",
    "debug.allowOutOfMemory": "go on, to write a report, when tiles have too little memory",
    "debug.branchRecordTile": "the tile that records branches",
    "debug.computeInstrumentationLevel": "how finely cycles are counted",
    "debug.instrument": "count cycles",
    "debug.instrumentCompute": "count cycles of computation",
    "debug.instrumentControlFlow": "count cycles of control flow",
    "debug.instrumentExternalExchange": "count cycles of exchange between IPUs",
    "debug.nanOverflowException": "stop at overflows",
    "debug.outputAllSymbols": "keep all symbols",
    "debug.profilingTile": "the tile whose cycles are counted",
    "debug.retainDebugInformation": "keep the names of operations",
    "debug.supervisorStackSizeInBytes": "stack of a supervisor",
    "debug.workerStackSizeInBytes": "stack of a worker",
    "exchange.": "exchange between tiles and with the host",
    "opt.enableMultiAccessCopies": "tune copies for speed",
    "opt.internalExchangeOptimisationTarget": "tune exchange for cycles or memory",
    "opt.maxCompilationThreads": "threads of the compiler",
    "opt.useAutoloader": "load programs by the autoloader",
    "profiler.": "what profiles show",
    "streamCallbacks.": "threads that serve host streams",
    "target.deterministicWorkers": "the same order of work at every run: true, false or portable",
    "target.gatewayMode": "connection through gateways",
    "target.hostSyncTimeout": "seconds after which a silent device is given up",
    "target.saveArchive": "file for the executable",
    "target.supervisorStackSizeInBytes": "stack of a supervisor",
    "target.syncPollPeriodUs": "microseconds between two looks at the device",
    "target.syncReplicasIndependently": "replicas talk to the host on their own",
    "target.workerStackSizeInBytes": "stack of a worker",
}


def poplar_engine_options() -> dict[str, str]:
    """The engine options in POPLAR_ENGINE_OPTIONS, a JSON object; values as text."""
    text = _options.read()
    if not text:
        return {}
    import json

    try:
        options = json.loads(text)
    except json.JSONDecodeError:
        options = None
    if not isinstance(options, dict):
        raise ValueError(
            f'POPLAR_ENGINE_OPTIONS must be a JSON object, such as {{"autoReport.all": "true"}}. '
            f"Received: POPLAR_ENGINE_OPTIONS={text!r}."
        )
    warn_of_unknown_keys(options, _options.name)
    return {key: str(value) for key, value in options.items()}


def warn_of_unknown_keys(keys: Iterable[str], source: str) -> None:
    """Says once for every key that no engine option has this name.

    Args:
      keys: names of engine options that a user gave.
      source: where they were given.
    """
    for key in keys:
        _warn(key, source)


@functools.cache
def _warn(key: str, source: str) -> None:
    if key in KEYS or any(known.endswith(".") and key.startswith(known) for known in KEYS):
        return
    near = difflib.get_close_matches(key, KEYS, n=1)
    advice = f" Did you mean {near[0]!r}?" if near else ""
    logging.getLogger("openipu.environment").warning(
        "%s has the key %r, which is no engine option openipu knows; it has no effect.%s", source, key, advice
    )
