"""What a layer takes on an IPU, counted in the jaxpr that it compiles to: the measure by which stages are balanced."""

from typing import Any

import attrs

from openipu.hardware.target import Target
from openipu.model import constants as c
from openipu.model.estimate import OperationKind
from openipu.model.flatten import flatten
from openipu.model.machine import Machine
from openipu.model.nodes import nodes
from openipu.model.options import Options

_PRODUCTS = (OperationKind.MATMUL, OperationKind.CONVOLUTION)


@attrs.frozen
class Cost:
    """What a computation takes.

    Attributes:
      flops: floating-point operations of matrix products and convolutions, a multiply-accumulate counting as two.
      seconds: predicted for one IPU.
      unknown_loops: loops whose number of iterations the jaxpr does not say; their bodies are counted once.
    """

    flops: float = 0.0
    seconds: float = 0.0
    unknown_loops: int = 0


def cost(jaxpr: Any, target: Target, options: Options = Options()) -> Cost:  # noqa: B008  (frozen)
    """The cost of one evaluation of a jaxpr, open or closed."""
    flat = flatten(jaxpr)
    found = nodes(flat, Machine(target, options))
    return Cost(
        flops=sum(node.flops * node.count for node in found if node.kind in _PRODUCTS),
        seconds=target.seconds(sum(node.cycles * node.count for node in found) * c.HARDWARE_FACTOR),
        unknown_loops=flat.unknown_loops,
    )
