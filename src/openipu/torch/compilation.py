"""From a module, options and an optimizer to an engine that runs it."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import numpy as np
import torch

from openipu.compiler import Cache, compile_program, progress
from openipu.compiler.pipeline import compile_pipeline, devices_for
from openipu.errors import UnsupportedError
from openipu.program import OutputMode, Plan
from openipu.runtime import Engine, PipelineEngine
from openipu.torch import blocks, grouping, library, norms, ops, overlap  # noqa: F401  (importing the operations registers them)
from openipu.torch.arguments import Arguments
from openipu.torch.batching import Batching, batching_of, micro_batch_shape
from openipu.torch.capture import Captured, capture
from openipu.torch.control_flow import capturing_for
from openipu.torch.entry import PREFIX, Entry
from openipu.torch.enums import OutputMode as modes
from openipu.torch.enums import ReductionType
from openipu.torch.exceptions import Error
from openipu.torch.grouping import ReplicaGrouping
from openipu.torch.hooks import _OverwriteContextManager
from openipu.torch.logger import logger
from openipu.torch.loss import find_loss
from openipu.torch.naming import activations
from openipu.torch.optim_description import Description
from openipu.torch.options import Options, validate
from openipu.torch.planning import pipeline_of, plan_of
from openipu.torch.programs import ModuleProgram, assemble, trained_names
from openipu.torch.structures import leaves, rebuild
from openipu.torch.sync import Weight, to_array, unwatched
from openipu.torch.tracing import capturing
from openipu.torch.updates import HYPER, Training

Hook = Callable[[], None]


@attrs.frozen(eq=False)
class Compiled:
    """A compiled model.

    Attributes:
      engine: runs it.
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

    engine: Engine | PipelineEngine
    entry: Entry
    captured: Captured
    module: ModuleProgram
    plan: Plan
    batching: Batching
    weights: dict[str, Weight]
    state: dict[str, Weight]
    state_tensors: dict[str, torch.Tensor]
    optimizer: Description | None
    rows: dict[str, int]
    ipus: int

    @property
    def state_hyper(self) -> Weight:
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
    cache: Cache | None = None,
) -> Compiled:
    """Capture and compile one call of a module.

    Args:
      model: the module.
      arguments: those of the first call, with full batches.
      options: the executor's.
      optimizer: the optimizer and what is known of it; None for inference.
      before, after: called around the capture, the second also when it fails.
      groupings: parameters that only groups of replicas share, by name.
      cache: where the executable is looked for first, and kept.
    """
    training = optimizer is not None
    validate(options, training)
    batching = batching_of(options, training)
    seen, groups = grouping.resolve(model, groupings or {}, batching.replicas)
    entry, flat = _entry(seen, arguments, batching, options)
    before()
    progress.begin("Capture")
    try:
        captured, recorder = _captured(entry, flat, options, training)
    finally:
        after()
    entry.warn_of_constants()
    overlap.check(captured, options)
    tensors: dict[str, torch.Tensor] = {**dict(entry.named_parameters()), **dict(entry.named_buffers())}
    tensors |= {name: model.get_parameter(name.removeprefix(PREFIX)) for name in groups}
    names = (*captured.parameters, *captured.buffers)
    values = {name: to_array(tensors[name]) for name in names}
    _check_buffers(captured, values, entry, options, batching)
    _check_updatable(entry, options)
    stages = blocks.stages(captured.graph, recorder, options)
    pipeline = pipeline_of(stages.ipus, options, training)
    goal = _training(captured, tensors, options, *optimizer) if optimizer is not None else None
    around = stages.around if pipeline is not None else None
    anchors = list(options.anchored_tensors.values())
    module = assemble(
        type(model).__name__,
        captured,
        values,
        goal,
        around,
        [anchor.name for anchor in anchors],
        activations(captured.graph, options._module_namescope),
        groups,
        norms.counters(entry),
        bool(options._Popart.options.get("enableFloatingPointChecks")),
    )
    dtypes = _accumulators(goal)
    plan = plan_of(options, training, pipeline, dtypes)
    if captured.mutated_inputs or any(anchor.output_mode != modes.Final for anchor in anchors):
        # What is written into inputs is wanted of every step, and anchors have modes of their own.
        plan = attrs.evolve(plan, outputs=OutputMode.ALL)
    weights = {name: Weight(tensors[name]) for name in (*module.shared, *module.local) if name in tensors}
    state_tensors = {name: torch.from_numpy(np.array(value)) for name, value in module.initial.items()}
    state = {name: Weight(tensor) for name, tensor in state_tensors.items()}
    engine = _engine(module, plan, {**weights, **state}, cache)
    return Compiled(
        engine=engine,
        entry=entry,
        captured=captured,
        module=module,
        plan=plan,
        batching=batching,
        weights=weights,
        state=state,
        state_tensors=state_tensors,
        optimizer=goal.optimizer if goal is not None else None,
        rows=goal.rows if goal is not None else {},
        ipus=_ipus(stages.used_ipus * options.replication_factor, options),
    )


def _entry(
    model: torch.nn.Module, arguments: Arguments, batching: Batching, options: Options
) -> tuple[Entry, tuple[torch.Tensor, ...]]:
    structure = (tuple(arguments.values), arguments.keywords)
    found = leaves(structure)
    small = [_first_micro_batch(leaf, batching) if isinstance(leaf, torch.Tensor) else leaf for leaf in found]
    args, kwargs = rebuild(structure, small)
    strided = bool(options._Popart.options.get("groupNormStridedChannelGrouping"))
    return Entry(model, args, kwargs, strided), tuple(leaf for leaf in small if isinstance(leaf, torch.Tensor))


def _first_micro_batch(tensor: torch.Tensor, batching: Batching) -> torch.Tensor:
    shape = micro_batch_shape(tuple(tensor.shape), batching)
    return tensor[: shape[0]].clone() if shape else tensor.clone()


def _captured(
    entry: Entry, flat: tuple[torch.Tensor, ...], options: Options, training: bool
) -> tuple[Captured, blocks.Recorder]:
    strategy = options._execution_strategy
    strategy.onStartTracing()
    try:
        with (
            unwatched([*entry.parameters(), *entry.buffers()]),
            blocks.recording() as recorder,
            _unchecked_distributions(),
            norms.cumulative(entry),
            _OverwriteContextManager(),
            capturing(),
            capturing_for(training),
        ):
            return capture(entry, flat), recorder
    except UnsupportedError as error:
        if "depends on the values in its" in str(error):
            raise Error(str(error)) from error
        raise
    finally:
        strategy.onEndTracing()


@contextlib.contextmanager
def _unchecked_distributions() -> Iterator[None]:
    """Without torch's checks of the arguments of distributions: they look at values."""
    held = torch.distributions.Distribution._validate_args
    torch.distributions.Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        torch.distributions.Distribution.set_default_validate_args(held)


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
    mean = options.Training.accumulation_and_replication_reduction_type == ReductionType.Mean
    return Training(loss, description, rows, mean)


def _accumulators(training: Training | None) -> tuple[str | None, ...] | None:
    if training is None or training.optimizer.structure["accumulator"] != "float16":
        return None
    gradients: tuple[str | None, ...] = ("float16",) * len(training.rows)
    return gradients if training.optimizer.automatic is None else (*gradients, None)


def _check_buffers(
    captured: Captured, values: dict[str, Any], entry: Entry, options: Options, batching: Batching
) -> None:
    """Refuses buffers that replicas would have to keep equal."""
    if batching.groups <= 1 or not options.broadcast_buffers:
        return
    norms = torch.nn.modules.batchnorm._NormBase
    written = [
        name
        for name in (*captured.mutated, *captured.mutated_parameters)
        if np.issubdtype(values[name].dtype, np.floating)
        and not isinstance(entry.get_submodule(name.rpartition(".")[0]), norms)
    ]
    if written:
        raise Error(
            "PopTorch does not support broadcasting buffers. If your model is able to tolerate buffers becoming out of "
            "sync between replicas, you can disable buffer broadcasting using "
            f"poptorch.Options.broadcastBuffers(False). Written are: {[n.removeprefix(PREFIX) for n in written]}."
        )


def _check_updatable(entry: Entry, options: Options) -> None:
    names = {name.removeprefix(PREFIX) for name, _ in entry.named_buffers()}
    unknown = [name for name in options._Popart.options.get("updatableNamedBuffers", ()) if name not in names]
    if unknown:
        raise Error(
            f"Options.updatableNamedBuffers names buffers that the model does not have: {unknown}. It has: "
            f"{sorted(names)}."
        )


def _engine(
    module: ModuleProgram, plan: Plan, residents: dict[str, Weight], cache: Cache | None
) -> Engine | PipelineEngine:
    shared = [residents[name] for name in module.shared]
    local = [residents[name] for name in module.local]
    devices = devices_for(plan)
    if devices is not None:
        return PipelineEngine(compile_pipeline(module.program, plan, devices, cache), shared, local)
    return Engine(compile_program(module.program, plan, cache=cache), shared, local)


def _ipus(needed: int, options: Options) -> int:
    """How many IPUs are taken: a power of two, at most 64."""
    if needed > 64:
        raise Error(
            f"Too many IPUs requested ({needed}). Experiments that need more than 64 IPUs require distributed "
            "execution."
        )
    taken = 1 << (needed - 1).bit_length()
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


def hyper_tensor(compiled: Compiled) -> torch.Tensor:
    """The host's copy of the hyper-parameters."""
    return compiled.state_tensors[HYPER]
