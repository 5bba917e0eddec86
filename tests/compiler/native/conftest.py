"""Tests of native kernels need them."""

import pytest

from openipu.compiler import native


@pytest.fixture
def kernels(monkeypatch):
    """The library, whatever OPENIPU_NATIVE says; a test that asks for it is skipped where it cannot be had."""
    monkeypatch.setenv("OPENIPU_NATIVE", "auto")
    found = native.library()
    if found is None:
        pytest.skip(native.why_not())
    return found
