"""Loops need the native library."""

from tests.compiler.native.conftest import kernels

__all__ = ["kernels"]
