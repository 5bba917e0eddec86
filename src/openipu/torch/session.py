"""One compiled model on its device: compiling, running, attaching, and the state that goes along."""

import time
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from tqdm import tqdm

from openipu import hardware
from openipu.errors import OutOfIpusError
from openipu.program import OutputMode as Outputs
from openipu.torch.arguments import Arguments, abstract, check_same, leaves_like, tensor_on_device
from openipu.torch.batching import merge_rows, multiplier, to_feed, to_result
from openipu.torch.compilation import Compiled, compile_module, hyper_tensor
from openipu.torch.counters import Counters
from openipu.torch.entry import PREFIX
from openipu.torch.enums import MeanReductionStrategy, OutputMode
from openipu.torch.exceptions import Error
from openipu.torch.hooks import after_capture, before_capture
from openipu.torch.optim import Optimizer
from openipu.torch.optim_description import Attributes, Description, check_replaceable, describe
from openipu.torch.optim_state import read_state, write_state
from openipu.torch.options import Options, uses_ipu_model
from openipu.torch.structures import map_leaves
from openipu.torch.sync import assign, to_array, to_tensor


class Session:
    """What an executor holds between its calls.

    Attributes:
      compiled: the compiled model; None before compilation and after `destroy`.
      runs: how often it has run.
      counters: measured moments of the last call.
      seconds: how long compiling took.
      anchored: the last values of anchored tensors.
    """

    def __init__(self, model: torch.nn.Module, options: Options, optimizer: torch.optim.Optimizer | None) -> None:
        self._model = model
        self._options = options
        self._optimizer = optimizer
        self._description: Description | None = describe(optimizer) if optimizer is not None else None
        self._attributes = Attributes(optimizer) if optimizer is not None else None
        self._expected: Arguments | None = None
        self._wide = any(p.dtype == torch.float64 for p in model.parameters())
        self.compiled: Compiled | None = None
        self._attached = False
        self._device: hardware.Device | None = None
        self.runs = 0
        self.counters = Counters()
        self.seconds = 0.0
        self.anchored: dict[str, torch.Tensor] = {}
        self._seed: int | None = options.random_seed if options.exists("random_seed") else None

    def compile(self, arguments: Arguments) -> None:
        """Capture and compile for arguments like these."""
        started = time.perf_counter()
        ready = self._prepared(arguments)
        given = None
        if self._optimizer is not None:
            assert self._description is not None
            given = (self._optimizer, self._description)
        shown = self._options._show_compilation_progress_bar
        with tqdm(total=100, desc="Graph compilation", disable=None if shown else True, leave=True) as bar:
            compiled = compile_module(self._model, ready, self._options, given, before_capture, after_capture)
            bar.update(100)
        self.compiled = compiled
        self._expected = abstract(ready)
        self.seconds = time.perf_counter() - started
        if isinstance(self._optimizer, Optimizer):
            self._optimizer._connect(self)

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
        feeds: Any = compiled.engine.place([to_feed(to_array(tensor), compiled.batching) for tensor in fed])
        uploaded = time.perf_counter()
        outputs = compiled.engine.run(feeds, self._seeds(compiled)).outputs
        for output in outputs:
            output.block_until_ready()
        computed = time.perf_counter()
        results = [np.asarray(output) for output in outputs]
        mode, period = OutputMode(self._options.output_mode), self._options.output_return_period
        made = compiled.entry.restore([self._result(r, mode, period) for r in results[: compiled.module.outputs]])
        extra = results[compiled.module.outputs :]
        written = len(compiled.captured.mutated_inputs)
        self._write_back(given, extra[:written])
        for (name, anchor), value in zip(self._options.anchored_tensors.items(), extra[written:], strict=True):
            self.anchored[name] = self._result(value, OutputMode(anchor.output_mode), anchor.output_return_period)
        self.runs += 1
        if self._optimizer is not None:
            # Schedulers of torch look for this, to warn of steps that never happened.
            self._optimizer._opt_called = True  # type: ignore[attr-defined]
        self._count(fed, len(results), (0.0, uploaded - started, computed - started, time.perf_counter() - started))
        return made

    def _prepared(self, arguments: Arguments) -> Arguments:
        def ready(leaf: Any) -> Any:
            return tensor_on_device(leaf, self._wide) if isinstance(leaf, torch.Tensor) else leaf

        values = [map_leaves(ready, value) for value in arguments.values]
        keywords = {name: map_leaves(ready, value) for name, value in arguments.keywords.items()}
        return Arguments(arguments.names, values, keywords)

    def _result(self, output: np.ndarray, mode: OutputMode, period: int) -> torch.Tensor:
        compiled = self.compiled
        assert compiled is not None
        if compiled.plan.outputs is Outputs.FINAL:
            output = output[None]
        tensor = to_tensor(to_result(output, mode, period, compiled.batching))
        tensor.backward = _no_backward  # type: ignore[method-assign]
        return tensor

    def _write_back(self, given: Sequence[torch.Tensor], written: Sequence[np.ndarray]) -> None:
        """What the module wrote into its inputs, into the caller's tensors."""
        compiled = self.compiled
        assert compiled is not None
        lead = 1 if compiled.batching.replicas == 1 else 2
        for index, value in zip(compiled.captured.mutated_inputs, written, strict=True):
            assign(given[index], merge_rows(value, lead))

    def _count(self, fed: Sequence[torch.Tensor], outputs: int, moments: tuple[float, float, float, float]) -> None:
        assert self.compiled is not None
        batching = self.compiled.batching
        mode, period = OutputMode(self._options.output_mode), self._options.output_return_period
        downloads = multiplier(mode, period, batching)
        self.counters = Counters(moments, len(fed), outputs, batching.steps * batching.replicas, downloads)

    def cycles(self) -> int:
        """The seconds the last call computed, in cycles of the virtual IPU's clock."""
        seconds = self.counters.moments[2] - self.counters.moments[1]
        return int(seconds * hardware.current_system().target.clock_hz)

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

    def _seeds(self, compiled: Compiled) -> list[int]:
        """A seed for every replica, other ones at every run."""
        drawn = np.random.SeedSequence([self.seed % 2**64, self.runs]).generate_state(compiled.plan.replicas, np.uint64)
        return [int(seed) for seed in drawn]

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
        new = describe(optimizer)
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
        """The optimizer's state and parameters on the device, as tensors by name."""
        if self.compiled is None:
            return {"ipu_state": None, "ipu_param": None}
        for weight in self.compiled.state.values():
            weight.refresh_host()
        return read_state(self.compiled)

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
            self._device = _acquire(self.compiled.ipus)
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
        weights = [name.removeprefix(PREFIX) for name in self.compiled.weights]
        names = [slot.name for slot in module.program.batch]
        names += weights
        if self._description is not None:
            names += ["loss"]
            names += [f"{prefix}___{name}" for name in weights for prefix in ("Gradient", "UpdatedVar")]
            state = read_state(self.compiled)
            names += [*state["ipu_state"], *state["ipu_param"]]
        return names


def _acquire(count: int) -> hardware.Device:
    """Hold the first free group of IPUs."""
    try:
        device = hardware.current_system().device(count, hardware.attached_ipus())
        hardware.attach(device)
    except OutOfIpusError as error:
        raise Error(f"Failed to acquire {count} IPU(s). {error}") from error
    return device


def _no_backward(*args: Any, **kwargs: Any) -> NoReturn:
    raise Error(
        "backward() cannot be called explicitly on outputs of a PopTorch model. If you're using a trainingModel, the "
        "backwards pass is performed automatically when invoking the model. If you're using an inferenceModel, you "
        "should use a trainingModel instead."
    )
