"""Operations that were experimental."""

from openipu.tensorflow.ipu.lazy import lazy

__getattr__, __dir__ = lazy(__name__, {"popfloat_cast_to_gfloat": "popfloat_cast_to_gfloat"})
