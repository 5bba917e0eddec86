"""Rewrite a captured step so that the backend runs it fast, without changing what it computes.

`optimise` is applied to a finished step: after differentiation, before `vmap` over replicas and `scan` over
device iterations. On CPU it does, in this order:

1. `inline` opens nested calls, so that the rules below see one flat program; calls that a native kernel takes stay;
2. `dead` drops equations whose results nobody reads (a captured gradient always has some);
3. `margins` leaves out parts of activations that pooling drops;
4. `rewriter` walks the equations once with two kinds of rule: *kernels* (`convolution`, `pooling`,
   `named_calls`, `native_fused`), which replace an equation XLA's CPU backend runs slowly by ones it runs fast,
   and *layout rules* (`layout`, `shapes`), which carry the kernels' dimension order (batch innermost) through the
   equations between them, so that nothing is transposed there;
5. `pinning` keeps values that are compared for equality from being rounded twice;
6. `dead` again, for what all of this left over.

The kernels and the layout are one walk because they decide each other: a convolution takes the order its input
happens to be stored in, and determines the order of what follows. The rewritten step is not meant to be
differentiated: custom derivative rules are opened by step 1.

`finish` is applied to a whole execution, when lanes and loops are in it: `loops` makes one call of each loop of small
dense steps; of what is left, large products and sums over many rows go to native kernels (`products`).
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from openipu.compiler import native
from openipu.compiler.passes import dead, inline, loops, margins, named_calls, pinning, products, rewriter


def optimise(closed_jaxpr: ClosedJaxpr, platform: str = "cpu", lanes: int = 1) -> ClosedJaxpr:
    """Returns a jaxpr with the same signature and results (up to rounding) that runs faster on `platform`.

    Args:
      closed_jaxpr: a finished step; loops, branches and calls inside it are optimised as well.
      platform: name of the JAX backend that will run it. Only "cpu" is rewritten: other backends have good kernels.
      lanes: how many of these steps will be computed side by side: kernels for larger batches may pay then.
    """
    if platform != "cpu":
        return closed_jaxpr
    # A captured step may hold 64-bit values; tracing replacements for it must not narrow them.
    with jax.enable_x64(True):
        closed_jaxpr = inline.run(closed_jaxpr, named_calls.takes)
        closed_jaxpr = dead.run(pinning.run(rewriter.run(margins.run(dead.run(closed_jaxpr)), lanes)))
    return closed_jaxpr


def finish(execution: Callable, arguments: tuple, platform: str = "cpu") -> Callable:
    """An execution on one device with its loops and large products by native kernels, where there are any.

    Args:
      execution: a finished one: with all lanes and loops.
      arguments: what it takes, as shapes.
      platform: as of `optimise`.
    """
    if platform != "cpu" or native.library() is None:
        return execution
    closed, shape = jax.make_jaxpr(execution, return_shape=True)(*arguments)
    compute, structure = jaxpr_as_fun(products.run(loops.run(closed))), jax.tree.structure(shape)

    def finished(*given: Any) -> Any:
        return jax.tree.unflatten(structure, compute(*jax.tree.leaves(given)))

    return finished
