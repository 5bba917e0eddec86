"""The names of `partition_evaluate`."""

from openipu.tensorflow.addons.auto_pipeline.partition_evaluate import (
    estimate_pipelined_model_profile,
    parse_pipelined_model_profile,
    profile_pipelined_model,
)

__all__ = [
    "estimate_pipelined_model_profile",
    "parse_pipelined_model_profile",
    "profile_pipelined_model",
]
