"""What openipu uses of PyTorch beyond its public API, and what it replaces in it: here, and nowhere else."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd.function import _is_setup_context_defined, _SingleLevelFunction
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm
from torch.nn.modules.batchnorm import _NormBase as NormBase
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch

from openipu.frameworks import Private

__all__ = [
    "PACKING",
    "TABLE",
    "BatchNorm",
    "FakeTensor",
    "FunctionalTensor",
    "NormBase",
    "OpOverload",
    "OpOverloadPacket",
    "all_decompositions",
    "check_batch_norm_input",
    "core_decompositions",
    "decompose",
    "forward_pre_hooks",
    "has_backward",
    "has_setup_context",
    "is_composite",
    "is_mutable",
    "mark_stepped",
    "no_dispatch",
    "own_modules",
    "own_parameters",
    "plain_apply",
    "pytree",
    "qualified_name",
    "replace_fetcher",
    "replaced_apply",
    "replaced_device",
    "schema_name",
    "set_own_modules",
    "set_own_parameters",
    "unchecked_distributions",
    "untracked",
    "while_loop",
]

TABLE = (
    Private("torch._ops.OpOverload", "what a node of an exported graph calls"),
    Private("torch._ops.OpOverload._schema", "an operation's name without its overload, and whether it writes"),
    Private("torch._ops.OpOverloadPacket", "lowerings are declared for all overloads of an operation"),
    Private("torch._ops.OpOverloadPacket._qualified_op_name", "the name of all overloads of an operation"),
    Private("torch._decomp._core_aten_decompositions_post_autograd", "how operations become Core ATen ones"),
    Private("torch._decomp.decomposition_table", "decompositions beyond those"),
    Private("torch._export.utils._get_decomp_for_cia", "how composite operations are taken apart"),
    Private("torch._export.utils._is_preservable_cia_op", "which operations are composites"),
    Private("torch._export.utils._special_op_to_preserve_cia", "composites that have a lowering stay whole"),
    Private(
        "torch.export.exported_program._decompose_exported_program",
        "run_decompositions without its search through all operations that torch knows",
    ),
    Private("torch._subclasses.fake_tensor.unset_fake_temporarily", "decompositions are not traced with fake tensors"),
    Private("torch._subclasses.fake_tensor.FakeTensor", "which results a captured module has computed"),
    Private(
        "torch._subclasses.fake_tensor.FakeTensor.device",
        "traced tensors are on the IPU to all but torch itself, and keep their class",
        "the property it was, when forward has run; `as_subclass`, which it inherits, is deleted then",
    ),
    Private("torch._subclasses.functional_tensor.FunctionalTensor", "which tensors have no values"),
    Private("torch._higher_order_ops.while_loop", "poptorch.for_loop, until torch makes it public"),
    Private("torch.utils._mode_utils.no_dispatch", "functions of the host run outside of the capture"),
    Private("torch._C.DisableTorchFunctionSubclass", "a watched tensor is read without being noticed"),
    Private("torch.utils._pytree.tree_flatten", "tensors in what a function of the user's own has saved"),
    Private("torch.autograd.function._is_setup_context_defined", "how a function of the user's own is called"),
    Private("torch._C._FunctionBase.apply", "calls of functions that are not captured"),
    Private(
        "torch.autograd.function._SingleLevelFunction",
        "below `Function.apply`, which programs keep as `f = MyFunction.apply` before anything is captured",
        "it has no `apply` of its own; the one it gets for a capture is deleted when that ends",
    ),
    Private("torch._VF._pack_padded_sequence", "packed sequences are refused by name"),
    Private("torch._VF._pad_packed_sequence", "packed sequences are refused by name"),
    Private("torch.nn.modules.batchnorm._BatchNorm", "the base of all batch norms"),
    Private("torch.nn.modules.batchnorm._BatchNorm._check_input_dim", "their own check, where their forward is ours"),
    Private("torch.nn.modules.batchnorm._NormBase", "the base of all norms with statistics"),
    Private("torch.nn.Module._parameters", "a twin of a module, with some parameters of its own"),
    Private("torch.nn.Module._modules", "a twin of a module, with some sub-modules of its own"),
    Private("torch.nn.Module._forward_pre_hooks", "which blocks start at a layer"),
    Private(
        "torch.distributions.Distribution._validate_args",
        "checks of arguments look at values, which a capture has not",
        "set_default_validate_args with what it was before, when the capture ends",
    ),
    Private("torch.optim.lr_scheduler.LRScheduler.step", "it warns unless `_opt_called` is set"),
    Private(
        "torch.utils.data.dataloader._SingleProcessDataLoaderIter._dataset_fetcher",
        "batches of tensors are gathered at once",
        "only the one iterator is changed, which nobody else holds",
    ),
)

PACKING = {torch._VF._pack_padded_sequence, torch._VF._pad_packed_sequence}  # pyright: ignore

# While it is entered, tensors of watched classes behave as plain ones.
untracked = torch._C.DisableTorchFunctionSubclass


def schema_name(operation: OpOverload) -> str:
    """An operation's `namespace::name`, without its overload."""
    return operation._schema.name


def is_mutable(operation: OpOverload) -> bool:
    """Whether an operation writes into its arguments."""
    return operation._schema.is_mutable


def qualified_name(packet: OpOverloadPacket) -> str:
    """The `namespace::name` of all overloads of an operation."""
    return packet._qualified_op_name


# What loads torch's compiler is imported where it is used: processes that only load data have no need of it.


def is_composite(operation: Any) -> bool:
    """Whether torch takes an operation apart unless it is told to keep it."""
    from torch._export.utils import _is_preservable_cia_op

    return _is_preservable_cia_op(operation)


def core_decompositions() -> dict[Any, Callable]:
    """How operations become Core ATen ones, for graphs whose gradient is already decided."""
    from torch._decomp import _core_aten_decompositions_post_autograd

    return _core_aten_decompositions_post_autograd()


def all_decompositions() -> dict[Any, Callable]:
    """How torch takes operations apart, Core ATen or not."""
    from torch._decomp import decomposition_table

    return decomposition_table


def while_loop(condition: Callable, body: Callable, values: tuple) -> Any:
    """A loop that stays one operation of a captured graph."""
    from torch._higher_order_ops import while_loop

    return while_loop(condition, body, values)


def decompose(
    program: torch.export.ExportedProgram,
    kept: Iterable[OpOverload],
    composites: Iterable[OpOverload],
    table: dict[Any, Callable],
) -> torch.export.ExportedProgram:
    """A program with operations taken apart.

    Args:
      program: what to rewrite.
      kept: composites that stay as they are.
      composites: composites that become what they consist of.
      table: how other operations are taken apart.
    """
    from torch._export.utils import _get_decomp_for_cia, _special_op_to_preserve_cia
    from torch.export.exported_program import _decompose_exported_program

    rules = dict.fromkeys(kept, _special_op_to_preserve_cia)
    with unset_fake_temporarily():
        return _decompose_exported_program(
            program,
            cia_to_decomp={**rules, **{operation: _get_decomp_for_cia(operation) for operation in composites}},
            python_decomp_table=table,
            joint_loss_index=None,
            decompose_custom_triton_ops=False,
        )


def check_batch_norm_input(module: BatchNorm, input: torch.Tensor) -> None:
    """Let a batch norm refuse an input of a wrong rank."""
    module._check_input_dim(input)


def own_parameters(module: torch.nn.Module) -> dict[str, torch.nn.Parameter | None]:
    """The parameters of a module itself, without those of its sub-modules."""
    return module._parameters


def set_own_parameters(module: torch.nn.Module, parameters: dict[str, torch.nn.Parameter | None]) -> None:
    """Replace them all; the module's own ways would write into a dictionary that a copy shares with its original."""
    object.__setattr__(module, "_parameters", parameters)


def own_modules(module: torch.nn.Module) -> dict[str, torch.nn.Module | None]:
    """The sub-modules of a module itself, without theirs."""
    return module._modules


def set_own_modules(module: torch.nn.Module, modules: dict[str, torch.nn.Module | None]) -> None:
    """Replace them all, as `set_own_parameters` does."""
    object.__setattr__(module, "_modules", modules)


def forward_pre_hooks(module: torch.nn.Module) -> Iterable[Callable]:
    """What is called before a module's forward."""
    return module._forward_pre_hooks.values()


def mark_stepped(optimizer: torch.optim.Optimizer) -> None:
    """Let learning rate schedulers know that the optimizer has made a step, though not by its `step`."""
    optimizer._opt_called = True  # pyright: ignore


@contextlib.contextmanager
def replaced_apply(apply: Callable) -> Iterator[None]:
    """Let `apply(cls, *args)` answer every call of a function of the user's own; the outermost context counts."""
    outermost = "apply" not in vars(_SingleLevelFunction)
    if outermost:
        _SingleLevelFunction.apply = classmethod(apply)  # pyright: ignore
    try:
        yield
    finally:
        if outermost:
            del _SingleLevelFunction.apply  # pyright: ignore


@contextlib.contextmanager
def replaced_device(shown: Callable[[FakeTensor, torch.device], torch.device]) -> Iterator[None]:
    """Let `shown(tensor, device)` answer where a traced tensor is; the outermost context counts.

    A traced tensor cannot change its class either: `as_subclass` gives it back as it is.
    """
    if "as_subclass" in vars(FakeTensor):
        yield
        return
    real: Any = vars(FakeTensor)["device"]
    FakeTensor.device = property(lambda tensor: shown(tensor, real.__get__(tensor)))  # pyright: ignore
    FakeTensor.as_subclass = lambda tensor, cls: tensor  # pyright: ignore
    try:
        yield
    finally:
        FakeTensor.device = real
        del FakeTensor.as_subclass


def plain_apply(function: Any) -> Callable:
    """The `apply` that a function of the user's own has from torch."""
    return torch._C._FunctionBase.__dict__["apply"].__get__(None, function)


def has_setup_context(function: Any) -> bool:
    """Whether a function of the user's own fills its context apart from its `forward`."""
    return _is_setup_context_defined(function.setup_context)


def has_backward(function: Any) -> bool:
    """Whether a function of the user's own has a `backward`; `vjp` is another name for it."""
    return function.backward is not _SingleLevelFunction.backward


def replace_fetcher(batches: Any, fetcher: Any) -> None:
    """Let an iterator of a DataLoader fetch its batches in another way; any other iterator is left alone."""
    if hasattr(batches, "_dataset_fetcher"):
        batches._dataset_fetcher = fetcher


@contextlib.contextmanager
def unchecked_distributions() -> Iterator[None]:
    """Without torch's checks of the arguments of distributions: they look at values."""
    held = torch.distributions.Distribution._validate_args
    torch.distributions.Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        torch.distributions.Distribution.set_default_validate_args(held)
