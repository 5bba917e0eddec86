"""The operations and contexts of the poptorch namespace."""

from openipu.torch.ops import custom_builtin, custom_collectives  # noqa: F401  (importing them registers them)
from openipu.torch.ops.control_flow import CPU, cond, for_loop
from openipu.torch.ops.custom_ops import custom_op
from openipu.torch.ops.decoding import ctc_beam_search_decoder
from openipu.torch.ops.hints import (
    identity_loss,
    nop,
    recomputationCheckpoint,
    serializedMatMul,
    set_available_memory,
    set_overlap_for_input,
    set_overlap_for_output,
)
from openipu.torch.ops.point_clouds import fps, nearest
from openipu.torch.ops.printing import ipu_print_tensor
from openipu.torch.ops.scopes import Attribute, MultiConv, NameScope, accessAttributes, attributes_lists
from openipu.torch.ops.slicing import dynamic_slice, dynamic_update

__all__ = [
    "CPU",
    "Attribute",
    "MultiConv",
    "NameScope",
    "accessAttributes",
    "attributes_lists",
    "cond",
    "ctc_beam_search_decoder",
    "custom_op",
    "dynamic_slice",
    "dynamic_update",
    "for_loop",
    "fps",
    "identity_loss",
    "ipu_print_tensor",
    "nearest",
    "nop",
    "recomputationCheckpoint",
    "serializedMatMul",
    "set_available_memory",
    "set_overlap_for_input",
    "set_overlap_for_output",
]
