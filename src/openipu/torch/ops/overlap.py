"""Transfers that overlap with computation: the marks on a model's inputs and outputs, and what they need."""

from typing import Any

import jax
import torch
from torch.fx import Graph, Node

from openipu.torch.aten.registry import lowering
from openipu.torch.enums import OutputMode
from openipu.torch.exceptions import Error
from openipu.torch.options import Options, PipelinedExecution, ShardedExecution


@torch.library.custom_op("openipu::overlap_input", mutates_args=())
def mark_input(x: torch.Tensor) -> torch.Tensor:
    """The value itself, as an input whose upload may overlap with computation."""
    return x.clone()


@torch.library.custom_op("openipu::overlap_output", mutates_args=())
def mark_output(x: torch.Tensor) -> torch.Tensor:
    """The value itself, as an output whose download may overlap with computation."""
    return x.clone()


@mark_input.register_fake
@mark_output.register_fake
def _fake(x: Any) -> torch.Tensor:
    return torch.empty_like(x)


@lowering("openipu::overlap_input")
@lowering("openipu::overlap_output")
def _same(x: jax.Array) -> jax.Array:
    return x


def check(graph: Graph, taken: list[Node], returned: list[Node], options: Options) -> None:
    """Refuses overlapping transfers that an IPU could not do.

    Args:
      graph: one forward pass.
      taken, returned: what stands for its inputs and outputs.
      options: the executor's.
    """
    calls = [node for node in graph.nodes if node.op == "call_function"]
    inputs = [node for node in calls if node.target is torch.ops.openipu.overlap_input.default]
    outputs = [node for node in calls if node.target is torch.ops.openipu.overlap_output.default]
    if not inputs and not outputs:
        return
    _check_options(options)
    for node in inputs:
        _check_input(node, taken)
    for node in outputs:
        if node not in returned:
            raise Error("poptorch.set_overlap_for_output applied on a node which is not a tensor output to the model.")
        if returned.count(node) > 1:
            raise Error(
                "poptorch.set_overlap_for_output cannot be used with a tensor that is returned twice. Please check all "
                "returned tensors including those nested in tuples/lists."
            )


def _check_options(options: Options) -> None:
    strategy = options._execution_strategy
    if isinstance(strategy, PipelinedExecution) and not isinstance(strategy, ShardedExecution):
        raise Error(
            "Overlapped IO is not supported with poptorch.PipelinedExecution. If you are using only one IPU, please "
            "switch to poptorch.ShardedExecution."
        )
    if not options.TensorLocations.exists("numIOTiles"):
        raise Error(
            "No IO tiles allocated. You must allocate at least 32 IO tiles using "
            "poptorch.Options().TensorLocations.numIOTiles."
        )
    if options.output_mode not in (OutputMode.All, OutputMode.Sum):
        raise Error(
            "Unsupported output mode for overlapped IO. Please switch output mode to poptorch.OutputMode.All or "
            "poptorch.OutputMode.Sum."
        )


def _check_input(node: Node, taken: list[Node]) -> None:
    source = node.args[0]
    if source not in taken:
        raise Error("poptorch.set_overlap_for_input applied on a node which is not a tensor input to the model.")
    assert isinstance(source, Node)
    if len(source.users) > 1:
        raise Error(
            "poptorch.set_overlap_for_input must be the only op applied to an input. This is not the case for input "
            f"{taken.index(source)} to the model."
        )
