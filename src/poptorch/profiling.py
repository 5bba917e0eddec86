"""`poptorch.profiling`: names only."""

from openipu.torch.ops.profiling import Channel

__all__ = ["Channel"]
