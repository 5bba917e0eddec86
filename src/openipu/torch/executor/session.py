"""One compiled model on its device: compiling, running, attaching, and the state that goes along."""

import time
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import torch

from openipu import environment, hardware
from openipu.compiler import Cache, Traps
from openipu.compiler.cache import POPTORCH
from openipu.errors import InvalidNumberError, OutOfIpusError
from openipu.model import Estimate
from openipu.program import Program
from openipu.report.watching import watch_for
from openipu.runtime import Setting
from openipu.torch.arrays import to_array
from openipu.torch.boundary import mark_stepped
from openipu.torch.capture.arguments import (
    Arguments,
    abstract,
    check_same,
    leaves_like,
    refuse_packed,
    tensor_on_device,
)
from openipu.torch.capture.flat_module import PREFIX
from openipu.torch.capture.grouping import ReplicaGrouping
from openipu.torch.capture.hooks import after_capture, before_capture
from openipu.torch.enums import ConnectionType, MeanReductionStrategy, OutputMode
from openipu.torch.exceptions import Error
from openipu.torch.executor import results, synthetic
from openipu.torch.executor.counters import Counters
from openipu.torch.executor.optimizer_state import read_state, write_state
from openipu.torch.executor.progress import showing_compilation
from openipu.torch.logger import logger
from openipu.torch.optim import loss_scaling
from openipu.torch.optim.description import Attributes, Description, check_replaceable, describe
from openipu.torch.optim.optimizers import Optimizer
from openipu.torch.options import Options, use_running_mean, uses_ipu_model
from openipu.torch.options.ipu_options import options_of
from openipu.torch.program import trapping
from openipu.torch.program.batching import multiplier, to_feed
from openipu.torch.program.compilation import CompiledModule, compile_module, hyper_tensor
from openipu.torch.structures import map_leaves


class Session:
    """What an executor holds between its calls.

    Attributes:
      compiled: the compiled model; None before compilation and after `destroy`.
      runs: how often it has run.
      counters: transfers of the last call, with the moments measured here.
      seconds: how long compiling took.
      anchored: the last values of anchored tensors.
      groupings: parameters that only groups of replicas share, by name; read when a model is compiled.
    """

    def __init__(self, model: torch.nn.Module, options: Options, optimizer: torch.optim.Optimizer | None) -> None:
        self._model = model
        self._options = options
        self._optimizer = optimizer
        self._automatic = loss_scaling.settings(options._Popart.options)
        self.compiled: CompiledModule | None = None
        self._description: Description | None = self._described(optimizer) if optimizer is not None else None
        self._attributes = Attributes(optimizer) if optimizer is not None else None
        self._expected: Arguments | None = None
        self._wide = any(p.dtype == torch.float64 for p in model.parameters())
        self._attached = False
        self._device: hardware.Device | None = None
        self.runs = 0
        self.counters = Counters()
        self.seconds = 0.0
        self.anchored: dict[str, torch.Tensor] = {}
        self.groupings: dict[str, ReplicaGrouping] = {}
        self._noted: set[str] = set()
        self._synthetic = synthetic.of_options(options)
        self._seed: int | None = options.random_seed if options.exists("random_seed") else None

    def compile(self, arguments: Arguments, cache: Cache | None = None) -> None:
        """Capture and compile for arguments like these.

        Args:
          arguments: those of a call.
          cache: where the executable is; None for the folder the options name, if any.
        """
        started = time.perf_counter()
        refuse_packed([arguments.values, arguments.keywords])
        ready = self._prepared(arguments)
        if any(isinstance(value, dict) for value in (*arguments.values, *arguments.keywords.values())):
            logger.warning("Dictionaries as inputs are only partially supported: their keys cannot change later.")
        given = None
        if self._optimizer is not None:
            assert self._description is not None
            given = (self._optimizer, self._description)
        checked = bool(self._options._Popart.options.get("enableFloatingPointChecks"))
        setting = Setting(
            cache or _cache(self._options),
            synthetic=self._synthetic,
            traps=Traps(checked, checked),
            watch=watch_for("poptorch", _engine_options(self._options), self._report_folder),
            ipu_options=options_of(self._options),
        )
        with showing_compilation(type(self._model).__name__, self._options, setting.cache is not None):
            compiled = compile_module(
                self._model, ready, self._options, given, before_capture, after_capture, self.groupings, setting
            )
        self.compiled = compiled
        self._expected = abstract(ready)
        self.seconds = time.perf_counter() - started
        if isinstance(self._optimizer, Optimizer):
            self._optimizer._connect(self)

    def _report_folder(self, program: Program) -> str:
        if self._options.exists("model_name"):
            return self._options.model_name
        return "training" if program.update is not None else "inference"

    def run(self, arguments: Arguments) -> Any:
        """One execution: upload the batch, run, bring the results home."""
        compiled = self.compiled
        assert compiled is not None and self._expected is not None
        ready = self._prepared(arguments)
        check_same(self._expected, ready)
        self._upload_loaded_state()
        before = (self._expected.values, self._expected.keywords)
        given = [x for x in leaves_like(before, (arguments.values, arguments.keywords)) if isinstance(x, torch.Tensor)]
        fed = [x for x in leaves_like(before, (ready.values, ready.keywords)) if isinstance(x, torch.Tensor)]
        started = time.perf_counter()
        feeds = compiled.session.place(lambda: [to_feed(to_array(tensor), compiled.batching) for tensor in fed])
        uploaded = time.perf_counter()
        try:
            made = compiled.session.run(feeds, self._seeds(compiled))
        except InvalidNumberError as error:
            raise trapping.explain(error.site, compiled.captured) from None
        computed = time.perf_counter()
        values = [np.asarray(o) for o in made.outputs]
        mode, period = OutputMode(self._options.output_mode), self._options.output_return_period
        own, rest = values[: compiled.module.outputs], values[compiled.module.outputs :]
        returned = compiled.entry.restore([results.returned(compiled, value, mode, period) for value in own])
        written = len(compiled.captured.mutated_inputs)
        if not self._synthetic.results:
            results.write_back(compiled, given, rest[:written])
        if self._options.anchored_tensors:
            self.anchored = results.anchored(compiled, self._options, rest[written:])
        self.runs += 1
        if self._optimizer is not None:
            # Schedulers of torch look for this, to warn of steps that never happened.
            mark_stepped(self._optimizer)
        self._count(fed, len(values), (0.0, uploaded - started, computed - started, time.perf_counter() - started))
        return returned

    def _prepared(self, arguments: Arguments) -> Arguments:
        def ready(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            if not leaf.is_contiguous():
                self._note("An input tensor is not contiguous: a contiguous copy of it is made at every call.")
            return tensor_on_device(leaf, self._wide)

        values = [map_leaves(ready, value) for value in arguments.values]
        keywords = {name: map_leaves(ready, value) for name, value in arguments.keywords.items()}
        return Arguments(arguments.names, values, keywords)

    def _note(self, message: str) -> None:
        """Warn, once for each executor."""
        if message not in self._noted:
            self._noted.add(message)
            logger.warning(message)

    def _count(self, fed: Sequence[torch.Tensor], outputs: int, moments: tuple[float, float, float, float]) -> None:
        assert self.compiled is not None
        if self._synthetic.feeds:
            self.counters = Counters()
            return
        batching = self.compiled.batching
        mode, period = OutputMode(self._options.output_mode), self._options.output_return_period
        downloads = multiplier(mode, period, batching)
        self.counters = Counters(moments, len(fed), outputs, batching.steps * batching.replicas, downloads)

    @property
    def predicted_counters(self) -> Counters:
        """The transfers of the last call, with the moments that a real IPU is predicted to need."""
        if self.compiled is None or not self.counters.inputs:
            return self.counters
        return attrs.evolve(self.counters, moments=self._estimate().moments)

    def cycles(self) -> int:
        """The cycles that one call is predicted to take on a real IPU."""
        return self._estimate().cycles_per_execution

    def _estimate(self) -> Estimate:
        assert self.compiled is not None
        made = self.compiled.session.estimate()
        if "estimate" not in self._noted:
            self._noted.add("estimate")
            logger.info("Latencies and cycles are estimates for one %s IPU, not measurements.", made.target.name)
        return made

    @property
    def expected(self) -> Arguments:
        """What the model was compiled for."""
        assert self._expected is not None
        return self._expected

    @property
    def seed(self) -> int:
        """The seed of random numbers: the options', or else torch's."""
        return self._seed if self._seed is not None else torch.initial_seed()

    @property
    def rng_state(self) -> list[int] | None:
        """The seed and how many runs have drawn from it."""
        if not self.runs:
            return None if self._seed is None else [self._seed]
        return [self.seed, self.runs]

    @rng_state.setter
    def rng_state(self, state: Sequence[int]) -> None:
        self._seed = int(state[0])
        self.runs = int(state[1]) if len(state) > 1 else 0

    def _seeds(self, compiled: CompiledModule) -> list[int]:
        """A seed for every replica, other ones at every run; zeros where nobody reads them."""
        if not compiled.session.draws:
            return [0] * compiled.plan.all_replicas
        source = np.random.SeedSequence([self.seed % 2**64, self.runs])
        return [int(seed) for seed in source.generate_state(compiled.plan.all_replicas, np.uint64)]

    def refresh_weights(self) -> None:
        """Copy weights from the device to the host."""
        if self.compiled is not None:
            for weight in self.compiled.weights.values():
                weight.refresh_host()

    def forget_weights(self, names: Sequence[str] | None = None) -> None:
        """Let the next run take the host's weights: all, or those named."""
        if self.compiled is None:
            return
        for name, weight in self.compiled.weights.items():
            if names is None or name.removeprefix(PREFIX) in names:
                weight.forget_device()

    def set_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Take over an optimizer, or the changed attributes of the present one."""
        new = self._described(optimizer)
        if self._attributes is not None and optimizer is self._optimizer:
            self._attributes.check(optimizer, new.kind, self._options._relax_optimizer_checks)
        if self.compiled is not None:
            assert self._description is not None
            self._check_accumulator(new)
            check_replaceable(self._description, new)
            hyper = hyper_tensor(self.compiled)
            hyper.copy_(torch.from_numpy(new.matrix))
            self.compiled.state_hyper.forget_device()
            if optimizer is not self._optimizer:
                if isinstance(self._optimizer, Optimizer):
                    self._optimizer._disconnect()
                if isinstance(optimizer, Optimizer):
                    optimizer._connect(self)
        self._optimizer, self._description = optimizer, new

    def _described(self, optimizer: torch.optim.Optimizer) -> Description:
        made = describe(optimizer, self._automatic)
        if self.compiled is None and made.structure["accumulator"] == "float16":
            use_running_mean(self._options)
        return made

    def _check_accumulator(self, new: Description) -> None:
        strategy = self._options.Training.meanAccumulationAndReplicationReductionStrategy
        assert self._description is not None
        changed = new.structure["accumulator"] != self._description.structure["accumulator"]
        if changed and new.structure["accumulator"] == "float16" and strategy != MeanReductionStrategy.Running:
            raise ValueError(
                "Invalid optimizer: the new optimizer would require changing "
                "options.Training.meanAccumulationAndReplicationReductionStrategy to "
                "poptorch.MeanReductionStrategy.Running but the executable is already compiled."
            )

    def optimizer_state(self) -> dict[str, Any]:
        """The optimizer's state and parameters on the device, as tensors by name; None where there is no device."""
        if self.compiled is None or self._options.connection_type == ConnectionType.Never:
            return {"ipu_state": None, "ipu_param": None}
        for weight in self.compiled.state.values():
            weight.refresh_host()
        return read_state(self.compiled)

    @property
    def optimizer(self) -> torch.optim.Optimizer | None:
        """What trains the model."""
        return self._optimizer

    def restore(self, state: dict[str, Any] | None, rng_state: Sequence[int] | None) -> None:
        """Go on where another executor of the same program was: optimizer state, and the random generator's."""
        assert self.compiled is not None
        if state is not None and state["ipu_state"]:
            write_state(self.compiled, state)
        if rng_state is not None:
            self.rng_state = rng_state

    def _upload_loaded_state(self) -> None:
        optimizer = self._optimizer
        if isinstance(optimizer, Optimizer) and optimizer._loaded is not None:
            assert self.compiled is not None
            write_state(self.compiled, optimizer._loaded)
            optimizer._loaded = None

    @property
    def attached(self) -> bool:
        """Whether the IPUs are held."""
        return self._attached

    def attach(self) -> None:
        """Take the IPUs."""
        assert self.compiled is not None
        if not uses_ipu_model(self._options):
            self._device = _acquire(self.compiled.ipus, self._options)
        self._attached = True

    def detach(self) -> None:
        """Let the IPUs go, optimizer state brought home; weights that nobody brought home are lost."""
        assert self.compiled is not None
        for state in self.compiled.state.values():
            state.refresh_host()
            state.forget_device()
        self.forget_weights()
        self._release()

    def destroy(self) -> None:
        """Drop the executable; the optimizer keeps its state."""
        if self.compiled is not None and isinstance(self._optimizer, Optimizer):
            self._optimizer._disconnect()
            if self._optimizer._cache["ipu_state"]:
                self._optimizer.set_state_dict(self._optimizer._cache)
        self.compiled = None
        self._release()

    def _release(self) -> None:
        self._attached = False
        if self._device is not None:
            hardware.detach(self._device)
            self._device = None

    def tensor_names(self) -> list[str]:
        """Names of inputs, weights, gradients, results and optimizer parameters."""
        assert self.compiled is not None
        module = self.compiled.module
        names = [*module.inside, *(name.removeprefix(PREFIX) for name in self.compiled.weights)]
        if self._description is not None:
            state = read_state(self.compiled)
            names += [*state["ipu_state"], *state["ipu_param"]]
        return names


def _cache(options: Options) -> Cache | None:
    """The folder of executables that the options or OPENIPU_CACHE name."""
    # An empty path is what `enableExecutableCaching(None)` leaves: the program's word goes before the environment's.
    folder = options._Popart.options.get("cachePath", environment.cache_dir())
    if folder and uses_ipu_model(options):
        logger.warning("enableExecutableCaching doesn't work with the IPU model")
        return None
    return Cache(folder, POPTORCH) if folder else None


def _engine_options(options: Options) -> dict[str, str]:
    """What POPLAR_ENGINE_OPTIONS and the options say; the options go first, as `enableProfiling` warns."""
    return {**environment.poplar_engine_options(), **options._Popart.options.get("engineOptions", {})}


def _acquire(count: int, options: Options) -> hardware.Device:
    """Hold the group that the options name, or else the first free one."""
    wait = hardware.Wait(poll=1.0) if environment.poptorch_waits_for_ipu() else None
    try:
        if not options.exists("ipu_id"):
            return hardware.acquire(count, wait)
        device = hardware.current_system().by_id(options.ipu_id)
        if device.count != count:
            raise OutOfIpusError(f"The device with the id {device.id} of useIpuId has {device.count}.")
        hardware.attach(device, wait)
    except OutOfIpusError as error:
        raise Error(f"Failed to acquire {count} IPU(s). {error}") from error
    return device
