"""The torch library `poptorch`: operators that some programs call as `torch.ops.poptorch.<name>`."""

from collections.abc import Callable
from typing import Any

import torch

from openipu.torch.exceptions import UnsupportedError
from openipu.torch.ops import blocks, decoding, hints, point_clouds, printing, slicing
from openipu.torch.ops.custom_ops import custom_op
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


def _custom(
    inputs: list[torch.Tensor], name: str, domain: str, version: int, count: int, outputs: list[torch.Tensor],
    attributes: str,
) -> list[torch.Tensor]:  # fmt: skip
    if attributes:
        raise UnsupportedError(
            "torch.ops.poptorch.custom_operation is not supported with attributes: its text refers to a table of the "
            "original's native layer. Use poptorch.custom_op."
        )
    return custom_op(inputs, name, domain, version, outputs)


def _print_tensor(
    x: torch.Tensor,
    title: str,
    gradient: int,
    threshold: int,
    edge: int,
    width: int,
    digits: int,
    form: int,
    *signs: str,
) -> torch.Tensor:
    name = ("auto", "fixed", "scientific", "none")[form]
    return printing.ipu_print_tensor(x, title, bool(gradient), threshold, edge, width, digits, name, *signs)


def _half(name: str, instead: str) -> Callable:
    """An operator that is one half of a construct: there is no such thing in a captured graph."""

    def refuse(*args: Any) -> Any:
        raise UnsupportedError(f"torch.ops.poptorch.{name} is not supported by itself. Use {instead}.")

    return refuse


_OPERATORS: dict[str, Callable] = {
    "push_name_scope(str name) -> ()": _nothing,
    "pop_name_scope() -> ()": _nothing,
    "set_attribute(str attribute, str key, str value) -> ()": _nothing,
    "clear_attribute(str attribute, str key) -> ()": _nothing,
    "begin_ipu_block(int stage_id, int phase_id, int ipu_id) -> ()": _begin_block,
    "end_ipu_block() -> ()": _nothing,
    "begin_multi_conv() -> ()": _nothing,
    "end_multi_conv(float[]? available_memory_proportions, int[]? partials_types, int? plan_type, "
    "int? per_conv_reserved_tiles, float? cycle_back_off, int[]? enableConvDithering) -> ()": _nothing,
    "ipu_print_tensor(Tensor self, str title, int print_gradient, int summarize_threshold, int edge_items, "
    "int max_line_width, int digits, int float_format, str separator, str open_bracket, str close_bracket) "
    "-> Tensor": _print_tensor,
    "custom_operation(Tensor[] inputs, str name, str domain, int domain_version, int num_outputs, Tensor[] outputs, "
    "str attributes) -> Tensor[]": _custom,
    "ctc_beam_search_decoder(Tensor probs, Tensor lengths, int blank, int beam_width, int top_paths) "
    "-> (Tensor, Tensor, Tensor)": decoding.ctc_beam_search_decoder,
    "fps(Tensor src, int[] ptr, float ratio, bool random_start) -> Tensor": point_clouds.fps,
    "nearest(Tensor x, Tensor y, Tensor batch_x, Tensor batch_y) -> Tensor": point_clouds.nearest,
    "nearest_batch_list(Tensor x, Tensor y, int[] batch_x, int[] batch_y) -> Tensor": point_clouds.nearest,
    "start_for_loop(Tensor[] inputs) -> ()": _half("start_for_loop", "poptorch.for_loop"),
    "end_for_loop(Tensor[] outputs, Tensor[] inputs, int trip_count) -> Tensor[]": _half(
        "end_for_loop", "poptorch.for_loop"
    ),
    "start_if_block(Tensor condition) -> ()": _half("start_if_block", "poptorch.cond"),
    "start_else_block(Tensor[] outputs_true) -> ()": _half("start_else_block", "poptorch.cond"),
    "end_if_block(Tensor[] outputs, Tensor condition) -> Tensor[]": _half("end_if_block", "poptorch.cond"),
    "call_cpu_op(Tensor[] inputs, str name) -> ()": _half("call_cpu_op", "poptorch.CPU"),
    "end_cpu_op(Tensor[] output) -> Tensor[]": _half("end_cpu_op", "poptorch.CPU"),
    "optimizer_group(int group, Tensor[] inputs) -> ()": _half("optimizer_group", "the groups of the optimizer"),
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
