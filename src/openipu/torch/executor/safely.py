"""Objects from a file, made without running anything that the file's author wrote, as far as its content allows."""

import copyreg
import enum
import io
import sys
from pathlib import Path
from typing import Any

import torch

from openipu.torch.exceptions import Error
from openipu.torch.logger import logger

# Modules whose classes only hold values; a file may name any of them.
_OURS = (
    "torch.nn.", "torch.optim.", "poptorch.", "openipu.torch.options.", "openipu.torch.optim.", "openipu.torch.enums",
    "openipu.torch.ops.blocks", "openipu.torch.capture.grouping",
)  # fmt: skip


def load(data: bytes, weights_only: bool | None, path: Path) -> Any:
    """What was pickled.

    Args:
      data: as `torch.save` wrote it.
      weights_only: whether to refuse what cannot be made safely; None makes it all the same, with a warning.
      path: the file, for messages.
    """
    if weights_only is not False:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(data))
        known = {name: _known(name) for name in names}
        unknown = sorted(name for name, found in known.items() if found is None)
        try:
            if not unknown:
                with torch.serialization.safe_globals([found for found in known.values() if found is not None]):
                    return torch.load(io.BytesIO(data), weights_only=True)
            reason = f"it names {', '.join(unknown[:5])}"
        except Exception as error:
            reason = str(error).partition("\n")[0]
        if weights_only:
            raise Error(
                f"{path} cannot be loaded with weights_only=True: {reason}. Import the classes of the model before, or "
                "if you trust whoever made the file, load it with weights_only=False."
            )
        logger.warning(
            "%s is unpickled, which can run what its author wrote (%s): only load files that you trust. "
            "poptorch.load(..., weights_only=True) refuses such files, weights_only=False does not warn.",
            path,
            reason,
        )
    return torch.load(io.BytesIO(data), weights_only=False)


def _known(name: str) -> Any:
    """What a name stands for, if making it cannot run the file's code; None otherwise. Nothing is imported for it."""
    if name == "copyreg._reconstructor":
        return copyreg._reconstructor  # type: ignore[attr-defined]
    module, _, attribute = name.rpartition(".")
    while module and module not in sys.modules:
        module, _, outer = module.rpartition(".")
        attribute = f"{outer}.{attribute}"
    found: Any = sys.modules.get(module)
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type):
        return None
    if issubclass(found, (torch.nn.Module, torch.optim.Optimizer, enum.Enum)) or name.startswith(_OURS):
        return found
    return None
