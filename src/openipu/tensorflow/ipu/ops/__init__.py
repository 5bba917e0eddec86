"""The operations of the IPU, one module for each family, imported when first used."""

from openipu.tensorflow.ipu import _OPS
from openipu.tensorflow.ipu.lazy import lazy

__getattr__, __dir__ = lazy(__name__, {name: name for name in (*_OPS, "experimental", "op_util")})
