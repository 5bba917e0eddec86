"""`poptorch.testing`: names only."""

from openipu.torch.testing import allclose

__all__ = ["allclose"]
