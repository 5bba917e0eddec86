"""The names of `partition`."""

from openipu.tensorflow.addons.auto_pipeline.partition import (
    assign,
    create_model_profile,
    get_auto_pipeline_partition_by_cycle_and_transfer,
    get_model_cost_matrix,
    get_transfer_cost_matrix,
    parse_layer_profile,
)

__all__ = [
    "assign",
    "create_model_profile",
    "get_auto_pipeline_partition_by_cycle_and_transfer",
    "get_model_cost_matrix",
    "get_transfer_cost_matrix",
    "parse_layer_profile",
]
