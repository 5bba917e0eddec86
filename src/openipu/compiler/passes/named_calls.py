"""Calls whose name says what they compute: they become the native kernel for it; without one they are opened."""

from typing import TYPE_CHECKING

from jax.extend.core import JaxprEqn

from openipu.compiler.passes import native_normalization, native_recurrent
from openipu.compiler.passes.layout import Stored

if TYPE_CHECKING:
    from openipu.compiler.passes.rewriter import Rewriter

_FAMILIES = (native_recurrent, native_normalization)


def takes(eqn: JaxprEqn) -> bool:
    """Whether a call is one that a native kernel computes."""
    return any(family.takes(eqn) for family in _FAMILIES)


def _rule(rewriter: "Rewriter", eqn: JaxprEqn) -> list[Stored] | None:
    return next((family.rule(rewriter, eqn) for family in _FAMILIES if family.takes(eqn)), None)


RULES = {"jit": _rule, "pjit": _rule}
