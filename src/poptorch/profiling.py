"""`poptorch.profiling`: names only."""

from openipu.torch.profiling import Channel

__all__ = ["Channel"]
