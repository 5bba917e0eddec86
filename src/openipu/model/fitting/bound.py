"""More memory than a program can need: a bound that takes no planning, and few numbers to keep."""

import math

import attrs
from jax.extend import core

from openipu.hardware.target import Target
from openipu.model import constants as c
from openipu.model.flatten import ALIASES
from openipu.model.options import Options
from openipu.program import Plan, Program

_PRODUCTS = ("dot_general", "conv_general_dilated")


@attrs.frozen
class Bound:
    """What a step has, in bytes, if nothing of it were ever freed.

    Attributes:
      kept: weights, optimizer state and other state.
      returned: gradients and other results of a step.
      made: everything that a step computes.
      operations: how many different ones there are.
      products: whether there are matrix products or convolutions, whose temporaries are a matter of planning.
    """

    kept: int
    returned: int
    made: int
    operations: int
    products: bool

    def fits(self, plan: Plan, target: Target, options: Options) -> bool:
        """Whether a program surely fits: False is a doubt, no more."""
        stages = plan.pipeline.stages if plan.pipeline is not None else 1
        waiting = 1 + 2 * (stages - 1)
        shares = [options.matmul_proportion, options.convolution_proportion, *(p for _, p in options.stage_proportions)]
        # Where little is allowed, products take the least they can, which is no more than with the usual share.
        products = c.OVERFULL_PLAN * max(Options().matmul_proportion, *shares) if self.products else 0.0
        code = (c.PROGRAM_BYTES + c.OPERATION_BYTES * self.operations) * target.tiles
        total = 2 * self.kept + 2 * self.returned + self.made * waiting + code + products * target.memory
        return total <= target.memory


def bound(program: Program, step: core.ClosedJaxpr) -> Bound:
    """The bound of a traced step."""
    made, distinct = 0, set()
    pending = [step.jaxpr]
    while pending:
        for equation in pending.pop().eqns:
            inner = [b for v in equation.params.values() for b in (v if isinstance(v, tuple | list) else (v,))]
            pending.extend(getattr(b, "jaxpr", b) for b in inner if isinstance(b, core.Jaxpr | core.ClosedJaxpr))
            if equation.primitive.name not in ALIASES:
                size = sum(_bytes(v.aval) for v in equation.outvars)
                made += size
                distinct.add((equation.primitive.name, size))
    return Bound(
        kept=sum(math.prod(slot.shape) * slot.dtype.itemsize for slot in (*program.shared, *program.local)),
        returned=sum(_bytes(aval) for aval in step.out_avals),
        made=made,
        operations=len(distinct),
        products=any(name in _PRODUCTS for name, _ in distinct),
    )


def _bytes(aval: object) -> int:
    shape = getattr(aval, "shape", ())
    return math.prod(shape) * min(4, getattr(getattr(aval, "dtype", None), "itemsize", 4))
