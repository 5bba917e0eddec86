"""popdist.poptorch on openipu: names only."""

from openipu.torch.options.distributed import Options

__all__ = ["Options"]
