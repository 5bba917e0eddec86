"""Generic small float formats: every name is refused when used, as `refused.TABLE` says."""

from openipu.tensorflow.ipu import refused

globals().update(refused.declare(__name__))

cast_to_gfloat16_param_size = 29
cast_to_gfloat32_param_size = 29
