"""`poptorch._utils`: names only."""

from openipu.torch.structures import combine_batch_tensors_gen

__all__ = ["combine_batch_tensors_gen"]
