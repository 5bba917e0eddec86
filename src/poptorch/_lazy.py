"""The names whose modules need JAX or register operators with torch, and where they live.

They come with `import poptorch`, which is when a program expects to wait, together with what torch itself would import
at the first capture. In processes that others have started, as the workers of a DataLoader, which never compile, they
are loaded when they are first touched.
"""

import importlib
import multiprocessing
from collections.abc import Callable
from typing import Any

_EXECUTOR = "openipu.torch.executor.executor"
_BLOCKS = "openipu.torch.ops.blocks"
_OPS = "openipu.torch.ops.operations"

# What torch's export and its optimizers import when they are first used.
_TORCH = ("torch._dynamo", "torch.export._trace")

NAMES: dict[str, str] = {
    "PoplarExecutor": _EXECUTOR,
    "_OverwriteContextManager": _EXECUTOR,
    "inferenceModel": _EXECUTOR,
    "load": _EXECUTOR,
    "registerPostCompileHook": _EXECUTOR,
    "registerPreCompileHook": _EXECUTOR,
    "trainingModel": _EXECUTOR,
    "BeginBlock": _BLOCKS,
    "Block": _BLOCKS,
    "BlockFunction": _BLOCKS,
    "LegacyBeginBlockFn": _BLOCKS,
    "module_repr": _BLOCKS,
    "print": _BLOCKS,
    "removeBlocks": _BLOCKS,
    "Attribute": _OPS,
    "CPU": _OPS,
    "MultiConv": _OPS,
    "NameScope": _OPS,
    "accessAttributes": _OPS,
    "attributes_lists": _OPS,
    "cond": _OPS,
    "ctc_beam_search_decoder": _OPS,
    "custom_op": _OPS,
    "dynamic_slice": _OPS,
    "dynamic_update": _OPS,
    "for_loop": _OPS,
    "fps": _OPS,
    "identity_loss": _OPS,
    "ipu_print_tensor": _OPS,
    "nearest": _OPS,
    "nop": _OPS,
    "recomputationCheckpoint": _OPS,
    "serializedMatMul": _OPS,
    "set_available_memory": _OPS,
    "set_overlap_for_input": _OPS,
    "set_overlap_for_output": _OPS,
}


def load() -> None:
    """Load all of them, unless this process was started by another, or serves to start others."""
    serving = getattr(multiprocessing.current_process(), "_inheriting", False)
    if multiprocessing.parent_process() is None and not serving:
        for module in (*_TORCH, *dict.fromkeys(NAMES.values())):
            importlib.import_module(module)


def resolve(module: str, name: str, source: str) -> Any:
    """The object called `name` in the module `source`, under the name it has for users."""
    try:
        return getattr(importlib.import_module(source), name)
    except ModuleNotFoundError as error:
        if error.name != source:
            raise
    except AttributeError:
        pass
    raise AttributeError(
        f"{module}.{name} is not available: {source} of this version of openipu does not have it yet. "
        "Use a newer version, or leave it out."
    )


def getattr_for(module: str, names: dict[str, str], namespace: dict[str, Any]) -> Callable[[str], Any]:
    """The `__getattr__` of a module some of whose names are loaded when first touched.

    Args:
      module: the module's name.
      names: its names, and the modules they are found in.
      namespace: the module's dictionary, where what was found is kept.
    """

    def __getattr__(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        namespace[name] = resolve(module, name, names[name])
        return namespace[name]

    return __getattr__
