"""Lowering of ATen operations, as `torch.export` captures them, to functions on JAX arrays."""

from openipu.torch.aten import (  # noqa: F401  (importing a family registers its operations)
    activation,
    contraction,
    control,
    creation,
    distance,
    elementwise,
    indexing,
    linalg,
    loss,
    normalization,
    pooling,
    random,
    recurrent,
    reduction,
    resize,
    shape,
    sorting,
)
from openipu.torch.aten.registry import Context, lowering, op

__all__ = ["Context", "lowering", "op"]
