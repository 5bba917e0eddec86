"""Programs as if their micro-batches were of another size."""

from openipu.model.rescaling.rescale import rescaled

__all__ = ["rescaled"]
