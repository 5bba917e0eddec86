"""Time loops of recurrent layers by native kernels: a call that has the name of one becomes it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs
import jax
from jax import lax
from jax.extend.core import JaxprEqn

from openipu.compiler import native
from openipu.compiler.native import recurrent as kernels
from openipu.compiler.passes.jaxprs import aval_of
from openipu.compiler.passes.layout import Stored, identity
from openipu.compiler.recurrent import calls

if TYPE_CHECKING:
    from openipu.compiler.passes.rewriter import Rewriter

# Bytes of packed weights of inputs that stay near while a thread goes through all times. Larger ones would be read
# again at every time, where a product of all times at once reads them seldom.
_NEAR = 1 << 18
# The weights and the bias of the inputs, where a call is not given their product.
_DENSE = 2

# Of what each call takes, the operands of the kernel (the mask follows, if there is one); how many it takes and makes.
_MULTIPLYING = "openipu_lstm_forward"
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
    masked = aval_of(eqn.invars[-1]).dtype == "bool"
    arrays = [aval_of(atom) for atom in eqn.invars[: len(eqn.invars) - masked]]
    more = len(arrays) - given
    if more not in ((0, _DENSE) if target == _MULTIPLYING else (0,)) or len(eqn.outvars) != made:
        return None
    if any(array.dtype != "float32" or 0 in array.shape for array in arrays):
        return None
    forward = target.endswith(calls.FORWARD)
    # The gates' inputs, or the gradient of all outputs, which follows that of the last state.
    times, batch = arrays[0 if forward else made - 1].shape[:2]
    features = arrays[0].shape[-1] if more else 0
    return kernels.Loop(target, times, batch, aval_of(eqn.outvars[0]).shape[-1], backwards, masked, features)


def rule(rewriter: "Rewriter", eqn: JaxprEqn) -> list[Stored] | None:
    """Emits the kernel and what else the loop returns."""
    loop = _loop(eqn)
    if loop is None:
        return None
    picked, given, made = _CALLS[loop.target]
    atoms = [rewriter.plain(eqn.invars[i]) for i in (*picked, *range(given, len(eqn.invars)))]

    def compute(*operands: jax.Array) -> list[jax.Array]:
        results = kernels.run(*_with_product(loop, operands))
        if loop.target.endswith(calls.BACKWARD):
            return list(results)
        last = 0 if loop.reversed else loop.times - 1
        return [*(state[last] for state in results[: made - len(results)]), *results]

    results = rewriter.emit_all(compute, *atoms)
    return [Stored(atom, identity(len(aval_of(atom).shape))) for atom in results]


def _with_product(loop: kernels.Loop, operands: Sequence[jax.Array]) -> tuple[kernels.Loop, Sequence[jax.Array]]:
    """A loop and its operands, after the product of the inputs where that is better made for all times at once."""
    if not loop.features:
        return loop, operands
    given = _CALLS[loop.target][1]
    x, (weights, bias) = operands[0], operands[given : given + _DENSE]
    if weights.size * weights.dtype.itemsize <= _NEAR:
        return loop, operands
    gates = lax.dot_general(x, weights, (((2,), (0,)), ((), ()))) + bias
    return attrs.evolve(loop, features=0), [gates, *operands[1:given], *operands[given + _DENSE :]]
