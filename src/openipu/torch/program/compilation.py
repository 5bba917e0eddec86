"""From a module, options and an optimizer to an engine that runs it."""

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np
import torch

from openipu import hardware
from openipu.compiler import progress
from openipu.model import Recompute
from openipu.program import Plan
from openipu.runtime import Resident, Session, Setting
from openipu.torch.arrays import resident_of, to_array
from openipu.torch.boundary import NormBase, unchecked_distributions
from openipu.torch.capture import constants, grouping
from openipu.torch.capture.arguments import Arguments
from openipu.torch.capture.flat_module import PREFIX, FlatModule
from openipu.torch.capture.grouping import ReplicaGrouping
from openipu.torch.capture.hooks import _OverwriteContextManager
from openipu.torch.capture.module import Captured, capture
from openipu.torch.capture.naming import activations
from openipu.torch.enums import ConnectionType
from openipu.torch.enums import OutputMode as modes
from openipu.torch.exceptions import Error
from openipu.torch.logger import logger
from openipu.torch.ops import blocks, library, norms, operations, overlap, recomputation  # noqa: F401  (importing the operations registers them)
from openipu.torch.ops.loss import find_loss
from openipu.torch.optim.description import Description
from openipu.torch.optim.updates import HYPER, Training
from openipu.torch.options import Options, uses_ipu_model, validate
from openipu.torch.program.assembly import ModuleProgram, assemble, trained_names
from openipu.torch.program.batching import Batching, batching_of, check_output_mode, micro_batch_shape
from openipu.torch.program.planning import meet, pipeline_of, plan_of, replicas_of
from openipu.torch.program.weights import unwatched
from openipu.torch.structures import leaves, rebuild
from openipu.torch.tracing import capturing, capturing_for

Hook = Callable[[], None]


@attrs.frozen(eq=False)
class CompiledModule:
    """A compiled model.

    Attributes:
      session: runs it.
      entry: puts its results together.
      captured: the forward pass.
      module: the program and the names of its state.
      plan, batching: how it is spread.
      weights: parameters and buffers that live on the device, by name.
      state: optimizer state and hyper-parameters, by name.
      state_tensors: the host's copies of `state`.
      optimizer: what was compiled in.
      rows: for every trained parameter, by name, its row of hyper-parameters.
      ipus: how many IPUs it takes.
    """

    session: Session
    entry: FlatModule
    captured: Captured
    module: ModuleProgram
    plan: Plan
    batching: Batching
    weights: dict[str, Resident]
    state: dict[str, Resident]
    state_tensors: dict[str, torch.Tensor]
    optimizer: Description | None
    rows: dict[str, int]
    ipus: int

    @property
    def state_hyper(self) -> Resident:
        """The hyper-parameters."""
        return self.state[HYPER]


def compile_module(
    model: torch.nn.Module,
    arguments: Arguments,
    options: Options,
    optimizer: tuple[torch.optim.Optimizer, Description] | None,
    before: Hook,
    after: Hook,
    groupings: Mapping[str, ReplicaGrouping] | None = None,
    setting: Setting = Setting(),  # noqa: B008  (frozen)
) -> CompiledModule:
    """Capture and compile one call of a module.

    Args:
      model: the module.
      arguments: those of the first call, with full batches.
      options: the executor's.
      optimizer: the optimizer and what is known of it; None for inference.
      before, after: called around the capture, the second also when it fails.
      groupings: parameters that only groups of replicas share, by name.
      setting: where and how it runs.
    """
    training = optimizer is not None
    validate(options)
    together = meet(options, training)
    batching = batching_of(options, training, together)
    seen, groups = grouping.resolve(model, groupings or {}, batching.replicas, *replicas_of(options, together))
    entry, flat = _entry(seen, arguments, batching, options)
    captured, recorder = _between(before, after, lambda: _captured(entry, flat, options, training))
    tensors: dict[str, torch.Tensor] = {**dict(entry.named_parameters()), **dict(entry.named_buffers())}
    tensors |= {name: model.get_parameter(name.removeprefix(PREFIX)) for name in groups}
    values = {name: to_array(tensors[name]) for name in (*captured.parameters, *captured.buffers)}
    _check(captured, values, entry, options, batching)
    stages = blocks.stages(captured.graph, recorder, options)
    ipus = _ipus(stages.used_ipus * options.replication_factor, options)
    pipeline = pipeline_of(stages.ipus, options, training)
    goal = _training(captured, tensors, options, *optimizer) if optimizer is not None else None
    around = stages.around if pipeline is not None else None
    anchors = [anchor.name for anchor in options.anchored_tensors.values()]
    inside = activations(captured.graph, options._module_namescope)
    module = assemble(type(model).__name__, captured, values, goal, around, anchors, inside, groups,
                      norms.counters(entry), bool(setting.traps))  # fmt: skip
    narrow = goal is not None and goal.accumulators is not None
    plan = plan_of(options, training, pipeline, narrow, _every_step(captured, options), together)
    weights = {name: resident_of(tensors[name]) for name in (*module.shared, *module.local) if name in tensors}
    state_tensors = {name: torch.from_numpy(np.array(value)) for name, value in module.initial.items()}
    state = {name: resident_of(tensor) for name, tensor in state_tensors.items()}
    rows = goal.rows if goal is not None else {}
    return CompiledModule(
        session=_session(module, plan, {**weights, **state}, rows, _checkpointed(setting, captured)),
        entry=entry,
        captured=captured,
        module=module,
        plan=plan,
        batching=batching,
        weights=weights,
        state=state,
        state_tensors=state_tensors,
        optimizer=goal.optimizer if goal is not None else None,
        rows=rows,
        ipus=ipus,
    )


def _between(before: Hook, after: Hook, capture: Callable[[], Any]) -> Any:
    before()
    progress.begin("Capture")
    try:
        return capture()
    finally:
        after()


def _checkpointed(setting: Setting, captured: Captured) -> Setting:
    """Marks of values to be kept say that all others are computed again."""
    if not recomputation.has_checkpoints(captured.graph):
        return setting
    return attrs.evolve(setting, ipu_options=attrs.evolve(setting.ipu_options, recompute=Recompute.CHECKPOINTS))


def _session(
    module: ModuleProgram, plan: Plan, residents: Mapping[str, Resident], rows: Mapping[str, int], setting: Setting
) -> Session:
    shared, local = ([residents[name] for name in names] for names in (module.shared, module.local))
    watched = [i for i, name in enumerate(module.shared) if name in rows]
    return Session(module.program, plan, shared, local, setting, watched=watched)


def _every_step(captured: Captured, options: Options) -> bool:
    """Whether outputs of every step are wanted: what is written into inputs; anchors have modes of their own."""
    anchors = options.anchored_tensors.values()
    return bool(captured.mutated_inputs) or any(anchor.output_mode != modes.Final for anchor in anchors)


def _check(captured: Captured, values: dict[str, Any], entry: FlatModule, options: Options, batching: Batching) -> None:
    """Refuse, or warn of, what the module does and the options do not allow."""
    entry.warn_of_constants()
    overlap.check(captured.graph, captured.input_nodes, captured.output_nodes, options)
    _check_buffers(captured, values, entry, options, batching.groups * batching.instances)
    _check_updatable(entry, options)
    for anchor in options.anchored_tensors.values():
        check_output_mode(modes(anchor.output_mode), anchor.output_return_period, batching)


def _entry(
    model: torch.nn.Module, arguments: Arguments, batching: Batching, options: Options
) -> tuple[FlatModule, tuple[torch.Tensor, ...]]:
    structure = (tuple(arguments.values), arguments.keywords)
    found = leaves(structure)
    small = [_first_micro_batch(leaf, batching) if isinstance(leaf, torch.Tensor) else leaf for leaf in found]
    args, kwargs = rebuild(structure, small)
    strided = bool(options._Popart.options.get("groupNormStridedChannelGrouping"))
    return FlatModule(model, args, kwargs, strided), tuple(leaf for leaf in small if isinstance(leaf, torch.Tensor))


def _first_micro_batch(tensor: torch.Tensor, batching: Batching) -> torch.Tensor:
    shape = micro_batch_shape(tuple(tensor.shape), batching)
    return tensor[: shape[0]].clone() if shape else tensor.clone()


def _captured(
    entry: FlatModule, flat: tuple[torch.Tensor, ...], options: Options, training: bool
) -> tuple[Captured, blocks.Recorder]:
    strategy = options._execution_strategy
    strategy.onStartTracing()
    try:
        with (
            unwatched([*entry.parameters(), *entry.buffers()]),
            blocks.recording() as recorder,
            unchecked_distributions(),
            norms.cumulative(entry),
            constants.kept(entry),
            _OverwriteContextManager(),
            capturing(),
            capturing_for(training),
        ):
            return capture(entry, flat), recorder
    finally:
        strategy.onEndTracing()


def _training(
    captured: Captured,
    tensors: dict[str, torch.Tensor],
    options: Options,
    optimizer: torch.optim.Optimizer,
    description: Description,
) -> Training:
    loss = find_loss(captured.graph)
    names = {id(tensor): name for name, tensor in tensors.items()}
    row_of: dict[str, int] = {}
    for row, group in enumerate(optimizer.param_groups):
        for tensor in group["params"]:
            if id(tensor) not in names:
                raise KeyError(
                    f"A tensor of shape {list(tensor.shape)} in group {row} of the optimizer is not a parameter of "
                    "the model"
                )
            row_of[names[id(tensor)]] = row
    # Parameters in no group are updated with the defaults, which are the last row.
    default = len(optimizer.param_groups)
    rows = {name: row_of.get(name, default) for name in trained_names(captured, loss)}
    return Training(loss, description, rows)


def _check_buffers(
    captured: Captured, values: dict[str, Any], entry: FlatModule, options: Options, groups: int
) -> None:
    """Refuses buffers that replicas would have to keep equal."""
    if groups <= 1 or not options.broadcast_buffers:
        return
    written = [
        name
        for name in (*captured.mutated, *captured.mutated_parameters)
        if np.issubdtype(values[name].dtype, np.floating)
        and not isinstance(entry.get_submodule(name.rpartition(".")[0]), NormBase)
    ]
    if written:
        raise Error(
            "PopTorch does not support broadcasting buffers. If your model is able to tolerate buffers becoming out of "
            "sync between replicas, you can disable buffer broadcasting using "
            f"poptorch.Options.broadcastBuffers(False). Written are: {[n.removeprefix(PREFIX) for n in written]}."
        )


def _check_updatable(entry: FlatModule, options: Options) -> None:
    names = {name.removeprefix(PREFIX) for name, _ in entry.named_buffers()}
    unknown = [name for name in options._Popart.options.get("updatableNamedBuffers", ()) if name not in names]
    if unknown:
        raise Error(
            f"Options.updatableNamedBuffers names buffers that the model does not have: {unknown}. It has: "
            f"{sorted(names)}."
        )


def _ipus(needed: int, options: Options) -> int:
    """How many IPUs are taken: at most 64, and a power of two where they are hardware."""
    if needed > 64:
        raise Error(
            f"Too many IPUs requested ({needed}). Experiments that need more than 64 IPUs require distributed "
            "execution."
        )
    if options.connection_type == ConnectionType.Never or uses_ipu_model(options):
        return needed
    taken = hardware.group_size(needed)
    if taken != needed and not options.auto_round_num_ipus:
        raise Error(
            f"The model specifies the use of {needed} IPUs, however PopTorch must reserve a minimum of {taken} in "
            "order to allow the model to run, because PopTorch must reserve a power of 2 or maximum of 64 IPUs per "
            "process. Please reconfigure your model to use a different number of IPUs or set "
            "poptorch.Options().autoRoundNumIPUs(True)."
        )
    if taken != needed:
        logger.warning(
            "The model uses %s IPUs; %s are reserved, because their number must be a power of 2", needed, taken
        )
    return taken


def hyper_tensor(compiled: CompiledModule) -> torch.Tensor:
    """The host's copy of the hyper-parameters."""
    return compiled.state_tensors[HYPER]
