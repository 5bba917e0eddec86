"""The torch library `poptorch`: operators that some programs call as `torch.ops.poptorch.<name>`."""

from typing import Any

import torch

from openipu.torch import blocks, hints, slicing
from openipu.torch.tracing import isRunningOnIpu

_DTYPES = {"FLOAT": torch.float32, "FLOAT16": torch.float16, "INT32": torch.int32, "BOOL": torch.bool}
_REDUCTIONS = ("sum", "mean", "none")

_library = torch.library.Library("poptorch", "DEF")


def _nothing(*args: Any) -> None:
    return None


def _same(tensor: torch.Tensor, *args: Any) -> torch.Tensor:
    return tensor.clone()


def _cast(tensor: torch.Tensor, dtype: str) -> torch.Tensor:
    return tensor.to(_DTYPES[dtype.upper()])


def _identity_loss(tensor: torch.Tensor, reduction: int) -> torch.Tensor:
    return hints.identity_loss(tensor, _REDUCTIONS[reduction])


def _begin_block(stage_id: int, phase_id: int, ipu_id: int) -> None:
    if isRunningOnIpu():
        blocks.Block.start(str(stage_id), ipu_id)


_OPERATORS = {
    "push_name_scope(str name) -> ()": _nothing,
    "pop_name_scope() -> ()": _nothing,
    "set_attribute(str attribute, str key, str value) -> ()": _nothing,
    "clear_attribute(str attribute, str key) -> ()": _nothing,
    "begin_ipu_block(int stage_id, int phase_id, int ipu_id) -> ()": _begin_block,
    "end_ipu_block() -> ()": _nothing,
    "begin_multi_conv() -> ()": _nothing,
    "nop(Tensor self) -> Tensor": _same,
    "recomputation_checkpoint(Tensor self) -> Tensor": _same,
    "set_available_memory(Tensor t, float mem) -> Tensor": _same,
    "set_overlap_for_input(Tensor t, str mode) -> Tensor": _same,
    "set_overlap_for_output(Tensor t, str mode) -> Tensor": _same,
    "set_matmul_serialization(Tensor matmul, str mode, int factor, bool keep_precision) -> Tensor": _same,
    "identity_loss(Tensor x, int reduction) -> Tensor": _identity_loss,
    "internal_cast(Tensor self, str dtype) -> Tensor": _cast,
    "dynamic_slice(Tensor self, int dim, Tensor start, int size, int step) -> Tensor": slicing.dynamic_slice,
    "dynamic_update(Tensor self, Tensor src, int dim, Tensor start, int size) -> Tensor": slicing.dynamic_update,
}

for _schema, _function in _OPERATORS.items():
    _library.define(_schema)
    # Taken apart while capturing, so that each leaves the operations it consists of.
    _library.impl(_schema.partition("(")[0], _function, "CompositeImplicitAutograd")
