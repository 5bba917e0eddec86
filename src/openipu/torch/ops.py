"""The operations and contexts of the poptorch namespace."""

from openipu.torch import custom_builtin  # noqa: F401  (importing them registers them)
from openipu.torch.control_flow import CPU, cond, for_loop
from openipu.torch.custom_ops import custom_op
from openipu.torch.decoding import ctc_beam_search_decoder
from openipu.torch.hints import (
    identity_loss,
    nop,
    recomputationCheckpoint,
    serializedMatMul,
    set_available_memory,
    set_overlap_for_input,
    set_overlap_for_output,
)
from openipu.torch.points import fps, nearest
from openipu.torch.printing import ipu_print_tensor
from openipu.torch.scopes import Attribute, MultiConv, NameScope, accessAttributes, attributes_lists
from openipu.torch.slicing import dynamic_slice, dynamic_update

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
