"""The names of `keras_utils`."""

from openipu.tensorflow.addons.auto_pipeline.keras_utils import (
    get_assignment_layer_type,
    parse_model_intermediate,
    prepend_batchsize,
    tf_nested_map_structure_all_tensor,
    tf_nested_map_structure_tensor,
    tf_tensor_size,
)

__all__ = [
    "get_assignment_layer_type",
    "parse_model_intermediate",
    "prepend_batchsize",
    "tf_nested_map_structure_all_tensor",
    "tf_nested_map_structure_tensor",
    "tf_tensor_size",
]
