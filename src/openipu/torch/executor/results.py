"""What one execution gave, as the program gets it: results, anchors, written inputs, and errors found on the device."""

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import torch

from openipu.program import OutputMode as Outputs
from openipu.torch.arrays import assign, to_tensor
from openipu.torch.capture.flat_module import PREFIX
from openipu.torch.enums import OutputMode
from openipu.torch.exceptions import Error
from openipu.torch.options import Options
from openipu.torch.program.anchoring import UPDATED, after_update
from openipu.torch.program.batching import merge_rows, to_result
from openipu.torch.program.compilation import CompiledModule


def returned(compiled: CompiledModule, output: np.ndarray, mode: OutputMode, period: int) -> torch.Tensor:
    """The tensor that the program gets of one output.

    Args:
      compiled: the model.
      output: of all steps, or of the last one if that is what the plan returns.
      mode, period: which steps are wanted.
    """
    if compiled.plan.outputs is Outputs.FINAL:
        output = output[None]
    tensor = to_tensor(to_result(output, mode, period, compiled.batching))
    tensor.backward = _no_backward  # type: ignore[method-assign]
    return tensor


def write_back(compiled: CompiledModule, given: Sequence[torch.Tensor], written: Sequence[np.ndarray]) -> None:
    """What the module wrote into its inputs, into the caller's tensors."""
    lead = 1 + len(compiled.plan.layout.axes)
    for index, value in zip(compiled.captured.mutated_inputs, written, strict=True):
        assign(given[index], merge_rows(value, lead))


def anchored(compiled: CompiledModule, options: Options, values: Sequence[np.ndarray]) -> dict[str, torch.Tensor]:
    """The anchored tensors by the names the program gave them."""
    found = {}
    for (name, anchor), value in zip(options.anchored_tensors.items(), values, strict=True):
        if anchor.name.startswith(UPDATED):
            value = _after_update(compiled, value, anchor.name)
        found[name] = returned(compiled, value, OutputMode(anchor.output_mode), anchor.output_return_period)
    return found


def _after_update(compiled: CompiledModule, value: np.ndarray, name: str) -> np.ndarray:
    final = compiled.plan.outputs is Outputs.FINAL
    last = compiled.weights[PREFIX + name.removeprefix(UPDATED)].peek()
    batching = compiled.batching
    after = after_update(value[None] if final else value, last, batching.accumulation, batching.layout)
    return after[-1] if final else after


def _no_backward(*args: Any, **kwargs: Any) -> NoReturn:
    raise Error(
        "backward() cannot be called explicitly on outputs of a PopTorch model. If you're using a trainingModel, the "
        "backwards pass is performed automatically when invoking the model. If you're using an inferenceModel, you "
        "should use a trainingModel instead."
    )
