"""Where training begins when a callback has restored an earlier run: at the same place on all instances."""

import logging
from typing import Any

import numpy as np

from openipu import instances

log = logging.getLogger("openipu.keras")


def agree(model: Any, asked: int, restored: int) -> int:
    """The epoch that all instances go on with.

    An instance that died while it wrote its backup is an epoch behind the others, and one without a backup of its own
    is at the beginning: then all of them take the state of the first.

    Args:
      model: what is trained; its variables were restored, if the callbacks of this instance do that.
      asked: the epoch that `fit` was asked to begin with.
      restored: the epoch after callbacks have been told that training begins.
    """
    instances.equal(f"begin with epoch {asked}", "Keras: fit")
    everyone = instances.gather(np.array(restored), "the epoch to go on with")
    if (everyone == restored).all():
        return restored
    first = instances.current()[0]
    log.info("Instances go on with the state of instance %d: they restored the epochs %s.", first, everyone.tolist())
    for variable in _state(model):
        variable.assign(instances.broadcast(np.asarray(variable), first, "restored state"))
    return int(everyone[0])


def _state(model: Any) -> list[Any]:
    """Weights, and what the optimizer keeps."""
    kept: Any = model.optimizer.variables
    # A method of Keras 2's older optimizers.
    kept = kept if isinstance(kept, list) else kept()
    return [*model.variables, *kept]
