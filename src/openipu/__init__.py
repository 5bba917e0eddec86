"""openipu runs programs written for Graphcore IPUs on the machine you have."""

from openipu.version import __version__

__all__ = ["__version__", "datasets"]


def __getattr__(name: str) -> object:
    # Loaded on first use: this module is imported by the interpreter hook at every start.
    if name == "datasets":
        import importlib

        return importlib.import_module("openipu.datasets")
    raise AttributeError(f"module 'openipu' has no attribute {name!r}")
