"""One compiled model on its device: compiling, running, attaching, and the state that goes along."""

import time
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from tqdm import tqdm

from openipu.hardware import current_system
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
from openipu.torch.optim_description import Description, check_replaceable, describe
from openipu.torch.optim_state import read_state, write_state
from openipu.torch.options import Options
from openipu.torch.structures import map_leaves
from openipu.torch.sync import assign, to_array, to_tensor


class Session:
    """What an executor holds between its calls.

    Attributes:
      compiled: the compiled model; None before compilation and after `destroy`.
      attached: whether the IPUs are held.
      runs: how often it has run.
      counters: measured moments of the last call.
      seconds: how long compiling took.
    """

    def __init__(self, model: torch.nn.Module, options: Options, optimizer: torch.optim.Optimizer | None) -> None:
        self._model = model
        self._options = options
        self._optimizer = optimizer
        self._description: Description | None = describe(optimizer) if optimizer is not None else None
        self._expected: Arguments | None = None
        self._wide = any(p.dtype == torch.float64 for p in model.parameters())
        self.compiled: Compiled | None = None
        self.attached = False
        self.runs = 0
        self.counters = Counters()
        self.seconds = 0.0
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
        feeds = compiled.engine.place([to_feed(to_array(tensor), compiled.batching) for tensor in fed])
        uploaded = time.perf_counter()
        outputs = compiled.engine.run(feeds, self._seeds(compiled)).outputs
        for output in outputs:
            output.block_until_ready()
        computed = time.perf_counter()
        results = [np.asarray(output) for output in outputs]
        made = compiled.entry.restore([self._result(r) for r in results[: compiled.module.outputs]])
        self._write_back(given, results[compiled.module.outputs :])
        self.runs += 1
        self._count(fed, len(results), (0.0, uploaded - started, computed - started, time.perf_counter() - started))
        return made

    def _prepared(self, arguments: Arguments) -> Arguments:
        def ready(leaf: Any) -> Any:
            return tensor_on_device(leaf, self._wide) if isinstance(leaf, torch.Tensor) else leaf

        values = [map_leaves(ready, value) for value in arguments.values]
        keywords = {name: map_leaves(ready, value) for name, value in arguments.keywords.items()}
        return Arguments(arguments.names, values, keywords)

    def _result(self, output: np.ndarray) -> torch.Tensor:
        compiled, options = self.compiled, self._options
        assert compiled is not None
        if compiled.plan.outputs is Outputs.FINAL:
            output = output[None]
        mode = OutputMode(options.output_mode)
        tensor = to_tensor(to_result(output, mode, options.output_return_period, compiled.batching))
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
        return int(seconds * current_system().target.clock_hz)

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

    def attach(self) -> None:
        """Take the IPUs."""
        self.attached = True

    def detach(self) -> None:
        """Let the IPUs go, everything brought home."""
        assert self.compiled is not None
        self.refresh_weights()
        for weight in self.compiled.state.values():
            weight.refresh_host()
            weight.forget_device()
        self.forget_weights()
        self.attached = False

    def destroy(self) -> None:
        """Drop the executable; the optimizer keeps its state."""
        if self.compiled is not None and isinstance(self._optimizer, Optimizer):
            self._optimizer._disconnect()
            if self._optimizer._cache["ipu_state"]:
                self._optimizer.set_state_dict(self._optimizer._cache)
        self.compiled, self.attached = None, False

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


def _no_backward(*args: Any, **kwargs: Any) -> NoReturn:
    raise Error(
        "backward() cannot be called explicitly on outputs of a PopTorch model. If you're using a trainingModel, the "
        "backwards pass is performed automatically when invoking the model. If you're using an inferenceModel, you "
        "should use a trainingModel instead."
    )
