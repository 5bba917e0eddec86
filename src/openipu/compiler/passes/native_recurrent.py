"""Time loops of recurrent layers by native kernels: a call that has the name of one becomes it."""

from typing import TYPE_CHECKING

import jax
from jax.extend.core import JaxprEqn

from openipu.compiler import native
from openipu.compiler.native import recurrent as kernels
from openipu.compiler.passes.jaxprs import aval_of
from openipu.compiler.passes.layout import Stored, identity
from openipu.compiler.recurrent import calls

if TYPE_CHECKING:
    from openipu.compiler.passes.rewriter import Rewriter

# Of what each call takes, the operands of the kernel (the mask follows, if there is one); how many it takes and makes.
_CALLS = {
    "openipu_lstm_forward": ((0, 1, 2, 3), 4, 9),
    # Neither the gates' inputs nor the hidden states before are needed.
    "openipu_lstm_backward": ((0, 1, 2, 3, 4, 5, 6, 7, 10, 11), 12, 3),
    "openipu_gru_forward": ((0, 1, 2, 3), 4, 6),
    "openipu_gru_backward": ((0, 1, 2, 3, 4, 5, 7, 8), 9, 2),
}


def takes(eqn: JaxprEqn) -> bool:
    """Whether a call is one that a native kernel computes."""
    return _loop(eqn) is not None


def _loop(eqn: JaxprEqn) -> kernels.Loop | None:
    if eqn.primitive.name not in ("jit", "pjit"):
        return None
    target, backwards = calls.target(eqn.params.get("name", ""))
    if target not in _CALLS or native.library() is None:
        return None
    _, given, made = _CALLS[target]
    masked = len(eqn.invars) == given + 1
    if len(eqn.invars) - masked != given or len(eqn.outvars) != made:
        return None
    arrays = [aval_of(atom) for atom in eqn.invars[:given]]
    if any(array.dtype != "float32" or 0 in array.shape for array in arrays):
        return None
    forward = target.endswith(calls.FORWARD)
    # The gates' inputs, or the gradient of all outputs, which follows that of the last state.
    times, batch = arrays[0 if forward else made - 1].shape[:2]
    return kernels.Loop(target, times, batch, aval_of(eqn.outvars[0]).shape[-1], backwards, masked)


def rule(rewriter: "Rewriter", eqn: JaxprEqn) -> list[Stored] | None:
    """Emits the kernel and what else the loop returns."""
    loop = _loop(eqn)
    if loop is None:
        return None
    picked, given, made = _CALLS[loop.target]
    atoms = [rewriter.plain(eqn.invars[i]) for i in (*picked, *range(given, len(eqn.invars)))]

    def compute(*operands: jax.Array) -> list[jax.Array]:
        results = kernels.run(loop, operands)
        if loop.target.endswith(calls.BACKWARD):
            return list(results)
        last = 0 if loop.reversed else loop.times - 1
        return [*(state[last] for state in results[: made - len(results)]), *results]

    results = rewriter.emit_all(compute, *atoms)
    return [Stored(atom, identity(len(aval_of(atom).shape))) for atom in results]
