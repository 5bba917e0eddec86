"""`poptorch._options_impl`: names only."""

from openipu.torch.options import OptionsDict

__all__ = ["OptionsDict"]
