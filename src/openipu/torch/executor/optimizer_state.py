"""An optimizer's state on the device under the names programs know, to be read and to be loaded."""

from typing import Any

import torch

from openipu.torch.logger import logger
from openipu.torch.optim.updates import HYPER, named_hyper
from openipu.torch.program.compilation import CompiledModule

# What is kept beside the optimizer's state and is none of it.
_OWN = (HYPER,)


def read_state(compiled: CompiledModule) -> dict[str, dict[str, torch.Tensor]]:
    """The state and the parameters, from the host's copies."""
    state = {name: tensor.clone() for name, tensor in compiled.state_tensors.items() if name not in _OWN}
    return {"ipu_state": state, "ipu_param": _parameters(compiled)}


def write_state(compiled: CompiledModule, loaded: dict[str, Any]) -> None:
    """Put loaded state into the host's copies, for the next run to take."""
    given = loaded["ipu_state"] or {}
    for name, weight in compiled.state.items():
        if name in _OWN:
            continue
        if name not in given:
            logger.warning("writeOptimizerState: ignoring missing state %s", name)
            continue
        compiled.state_tensors[name].copy_(given[name])
        weight.forget_device()
    known = _parameters(compiled)
    for name in known:
        if name not in (loaded["ipu_param"] or {}):
            logger.warning("writeOptimizerState: ignoring missing parameter %s", name)


def _parameters(compiled: CompiledModule) -> dict[str, torch.Tensor]:
    assert compiled.optimizer is not None
    found = named_hyper(compiled.optimizer, compiled.rows, compiled.state_tensors[HYPER])
    return {name: value.float() for name, value in found.items()}
