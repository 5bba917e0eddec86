"""The names of `types_utils`."""

from openipu.tensorflow.addons.auto_pipeline.types_utils import (
    aggregate_info_inplace,
    cluster_of,
    compare_pipelined_model_profile,
    copy_layer_info,
    get_empty_layer_info,
    get_empty_range_info,
    transfer_cycle,
)

__all__ = [
    "aggregate_info_inplace",
    "cluster_of",
    "compare_pipelined_model_profile",
    "copy_layer_info",
    "get_empty_layer_info",
    "get_empty_range_info",
    "transfer_cycle",
]
