"""What one execution gave, as the program gets it: results, anchors, written inputs, and errors found on the device."""

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import torch

from openipu.program import OutputMode as Outputs
from openipu.torch import trapping
from openipu.torch.anchoring import UPDATED, after_update
from openipu.torch.batching import merge_rows, to_result
from openipu.torch.compilation import Compiled
from openipu.torch.entry import PREFIX
from openipu.torch.enums import OutputMode
from openipu.torch.exceptions import Error
from openipu.torch.options import Options
from openipu.torch.sync import assign, to_tensor


def returned(compiled: Compiled, output: np.ndarray, mode: OutputMode, period: int) -> torch.Tensor:
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


def write_back(compiled: Compiled, given: Sequence[torch.Tensor], written: Sequence[np.ndarray]) -> None:
    """What the module wrote into its inputs, into the caller's tensors."""
    lead = 1 if compiled.batching.replicas == 1 else 2
    for index, value in zip(compiled.captured.mutated_inputs, written, strict=True):
        assign(given[index], merge_rows(value, lead))


def anchored(compiled: Compiled, options: Options, values: Sequence[np.ndarray]) -> dict[str, torch.Tensor]:
    """The anchored tensors by the names the program gave them."""
    found = {}
    for (name, anchor), value in zip(options.anchored_tensors.items(), values, strict=True):
        if anchor.name.startswith(UPDATED):
            value = _after_update(compiled, value, anchor.name)
        found[name] = returned(compiled, value, OutputMode(anchor.output_mode), anchor.output_return_period)
    return found


def _after_update(compiled: Compiled, value: np.ndarray, name: str) -> np.ndarray:
    final = compiled.plan.outputs is Outputs.FINAL
    last = compiled.weights[PREFIX + name.removeprefix(UPDATED)].on_device()
    batching = compiled.batching
    after = after_update(value[None] if final else value, last, batching.accumulation, batching.replicas)
    return after[-1] if final else after


def check_numbers(compiled: Compiled, finished: Sequence[Any]) -> None:
    """Refuses infinities and NaNs that the device has met, if it looked for them."""
    if not finished:
        return
    numbers = np.asarray(finished[0])
    met = numbers[numbers != 0]
    if met.size:
        compiled.state[trapping.TRAP].forget_device()
        # What happened in a forward pass is the cause of what is wrong with gradients, and these of weights.
        trapping.refuse(int(met.max()), compiled.captured)


def _no_backward(*args: Any, **kwargs: Any) -> NoReturn:
    raise Error(
        "backward() cannot be called explicitly on outputs of a PopTorch model. If you're using a trainingModel, the "
        "backwards pass is performed automatically when invoking the model. If you're using an inferenceModel, you "
        "should use a trainingModel instead."
    )
