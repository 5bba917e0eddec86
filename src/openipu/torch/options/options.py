"""`poptorch.Options`: everything a program says about how its models run."""

import copy
from typing import Any, Self

import torch

from openipu import environment
from openipu.torch.enums import CommGroupType, ConnectionType, OutputMode, SyncPattern
from openipu.torch.logger import logger
from openipu.torch.options import loading
from openipu.torch.options.anchors import anchor, check_period
from openipu.torch.options.base import OptionsDict
from openipu.torch.options.groups import _DistributedOptions, _JitOptions, _PrecisionOptions, _TrainingOptions
from openipu.torch.options.locations import _TensorLocationOptions
from openipu.torch.options.popart import _PopartOptions
from openipu.torch.options.strategies import PipelinedExecution, _IExecutionStrategy

_RANDOM_NORMAL = 2  # the backend's number for synthetic data drawn from a normal distribution


class Options(OptionsDict):
    """How models run: batches per call, replicas, results, devices, caches. Methods return the object itself."""

    def __init__(self) -> None:
        self._popart = _PopartOptions()
        self._training = _TrainingOptions(self._popart)
        self._precision = _PrecisionOptions(self._popart)
        self._jit = _JitOptions()
        self._tensor_locations = _TensorLocationOptions()
        self._distributed = _DistributedOptions()
        self._execution_strategy: _IExecutionStrategy = PipelinedExecution()
        self._show_compilation_progress_bar = True
        self._relax_optimizer_checks = False
        self._module_namescope = True
        self._source_location_excludes = ["install/poptorch", "site-packages/torch", "site-packages/poptorch"]
        super().__init__(
            replication_factor=1,
            input_group_size=1,
            input_cgt=CommGroupType.Consecutive,
            broadcast_buffers=True,
            device_iterations=1,
            log_dir=".",
            max_repeat_logs=4,
            auto_round_num_ipus=False,
            anchored_tensors={},
            output_mode=OutputMode.Default.value,
            output_return_period=1,
            connection_type=ConnectionType.Always.value,
            sync_pattern=SyncPattern.Full.value,
            available_memory_proportion={},
        )
        environment.poplar_engine_options()  # What is wrong in it is said here, before anything is compiled.
        if environment.poptorch_cache_dir():
            self.enableExecutableCaching(environment.poptorch_cache_dir())
        if environment.poptorch_default_options():
            self.from_json(environment.poptorch_default_options())

    @property
    def TensorLocations(self) -> _TensorLocationOptions:
        """Where tensors are kept."""
        return self._tensor_locations

    @property
    def Distributed(self) -> _DistributedOptions:
        """Which of several processes this one is."""
        return self._distributed

    @property
    def Jit(self) -> _JitOptions:
        """Options of a way of capturing models that is gone."""
        return self._jit

    @property
    def Precision(self) -> _PrecisionOptions:
        """Options about number formats."""
        return self._precision

    @property
    def Training(self) -> _TrainingOptions:
        """Options that only training models use."""
        return self._training

    @property
    def _Popart(self) -> _PopartOptions:
        """Options passed through to the backend."""
        return self._popart

    def from_json(self, string: str) -> Self:
        """Applies a JSON object of accessors and arguments."""
        loading.apply_json(self, string)
        return self

    def loadFromFile(self, filepath: str) -> Self:
        """Applies the calls listed in a text file; nothing in it is executed as code."""
        loading.apply_file(self, filepath)
        return self

    def deviceIterations(self, device_iterations: int) -> Self:
        """Micro-batches (inference) or weight updates (training) per call."""
        return self.set(device_iterations=device_iterations)

    def replicationFactor(self, replication_factor: int) -> Self:
        """Copies of the model, each with its own micro-batch."""
        return self.set(replication_factor=replication_factor)

    def inputReplicaGrouping(self, input_group_size: int, input_group_type: CommGroupType) -> Self:
        """Lets groups of replicas take the same data; to be called after `replicationFactor`.

        Args:
          input_group_size: replicas in a group.
          input_group_type: how groups are formed.
        """
        if input_group_type == CommGroupType.NoGrouping:
            input_group_size, input_group_type = 1, CommGroupType.Consecutive
        if input_group_type == CommGroupType.All:
            raise ValueError("input_group_type cannot be All")
        if input_group_size > self.replication_factor:
            raise ValueError("input_group_size cannot be larger than replication_factor")
        if input_group_size < 1 or self.replication_factor % input_group_size:
            raise ValueError("input_group_size must be a factor of replication_factor")
        return self.set(input_group_size=input_group_size, input_cgt=input_group_type)

    def broadcastBuffers(self, broadcast_buffers: bool = True) -> Self:
        """Whether all replicas start with the same buffers."""
        return self.set(broadcast_buffers=broadcast_buffers)

    def outputMode(self, output_mode: OutputMode, output_return_period: int | None = None) -> Self:
        """Which results of the micro-batches of one call come back.

        Args:
          output_mode: the mode.
          output_return_period: every how many iterations, for `OutputMode.EveryN`.
        """
        assert isinstance(output_mode, OutputMode), (
            f"output_mode must be a poptorch.OutputMode. Received: {type(output_mode)}"
        )
        if output_mode is OutputMode.EveryN:
            check_period(output_return_period)
        elif output_return_period is not None:
            logger.info(
                "output_return_period=%s is ignored: it only applies to OutputMode.EveryN", output_return_period
            )
            output_return_period = None
        return self.set(output_mode=output_mode.value, output_return_period=output_return_period or 1)

    def defaultOutputMode(self) -> bool:
        """Whether no mode was chosen yet."""
        return self.output_mode == OutputMode.Default

    def anchorTensor(
        self, short_name: str, long_name: str, output_mode: OutputMode | None = None, output_return_period: int = 1
    ) -> None:
        """Asks for a tensor inside the model; it is read by `executor.getAnchoredTensor(short_name)`.

        Args:
          short_name: the name to read it by.
          long_name: its name in the model.
          output_mode: which values come back; None for the same as the model's outputs.
          output_return_period: every how many iterations, for `OutputMode.EveryN`.
        """
        self.anchored_tensors[short_name] = anchor(long_name, output_mode, output_return_period)

    def randomSeed(self, random_seed: int) -> Self:
        """Seeds the device, and torch on the host at once."""
        assert isinstance(random_seed, int), f"randomSeed needs an int. Received: {type(random_seed)}"
        self.createOrSet(random_seed=random_seed)
        torch.manual_seed(random_seed)
        return self

    def setExecutionStrategy(self, strategy: _IExecutionStrategy) -> Self:
        """How the blocks of a model become stages or phases."""
        self.checkIsFrozen("execution_strategy")
        assert isinstance(strategy, _IExecutionStrategy), (
            f"An execution strategy such as poptorch.PipelinedExecution() is expected. Received: {type(strategy)}"
        )
        self._execution_strategy = strategy
        return self

    def setAvailableMemoryProportion(self, available_memory_proportion: dict[str, float]) -> Self:
        """The share of each IPU's memory for temporaries of convolutions and products; tuning only."""
        found: dict[int, float] = {}
        for key, value in available_memory_proportion.items():
            assert isinstance(key, str) and key.startswith("IPU") and key[3:].isdigit(), (
                'Available memory proportions are expected to be in a dictionary of {"IPU0": 0.5} where the 0 in IPU0 '
                f"is the number of the IPU. Invalid key: {key}"
            )
            found[int(key[3:])] = float(value)
        return self.set(available_memory_proportion=found)

    def autoRoundNumIPUs(self, auto_round_num_ipus: bool = True) -> Self:
        """Whether a number of IPUs that is not a power of two is rounded up."""
        return self.set(auto_round_num_ipus=auto_round_num_ipus)

    def useIpuModel(self, use_model: bool) -> Self:
        """Whether the software model stands in for hardware."""
        assert isinstance(use_model, bool), f"useIpuModel needs a bool. Received: {type(use_model)}"
        return self.createOrSet(use_model=use_model)

    def useIpuId(self, ipu_id: int) -> Self:
        """The device to use."""
        assert isinstance(ipu_id, int), f"useIpuId needs an int. Received: {type(ipu_id)}"
        return self.createOrSet(ipu_id=ipu_id)

    def useOfflineIpuTarget(self, ipu_version: int = 2) -> Self:
        """Compiles for a version of the IPU (1, 2 or 21) without a device."""
        assert ipu_version in (1, 2, 21), f"ipu_version must be 1, 2 or 21. Received: {ipu_version!r}"
        self.connectionType(ConnectionType.Never)
        return self.createOrSet(ipu_version=ipu_version)

    def connectionType(self, connection_type: ConnectionType) -> Self:
        """When IPUs are taken."""
        assert isinstance(connection_type, ConnectionType), (
            f"connection_type must be a poptorch.ConnectionType. Received: {type(connection_type)}"
        )
        return self.set(connection_type=connection_type.value)

    def syncPattern(self, sync_pattern: SyncPattern) -> Self:
        """Which IPUs wait for each other; tuning only."""
        assert isinstance(sync_pattern, SyncPattern), (
            f"sync_pattern must be a poptorch.SyncPattern. Received: {type(sync_pattern)}"
        )
        return self.set(sync_pattern=sync_pattern.value)

    def enableExecutableCaching(self, path: str | None) -> Self:
        """Keeps compiled executables in a directory; None switches that off."""
        self._popart.set("cachePath", path or "")
        self._popart.set("enableEngineCaching", bool(path))
        return self

    def logDir(self, log_dir: str) -> Self:
        """Where logs are written."""
        return self.set(log_dir=log_dir)

    def maxRepeatLogs(self, max_lines: int | None) -> Self:
        """How often the same line is logged; None for no limit."""
        assert max_lines is None or isinstance(max_lines, int), (
            f"maxRepeatLogs needs an int or None. Received: {type(max_lines)}"
        )
        return self.createOrSet(max_repeat_logs=max_lines)

    def modelName(self, name: str) -> Self:
        """The model's name in reports."""
        assert isinstance(name, str), f"modelName needs a str. Received: {type(name)}"
        return self.createOrSet(model_name=name)

    def showCompilationProgressBar(self, show: bool = True) -> Self:
        """Whether compiling shows its progress."""
        return self._private("_show_compilation_progress_bar", show)

    def relaxOptimizerAttributesChecks(self, relax: bool = True) -> Self:
        """Whether unknown attributes of an optimizer are only mentioned in debug logs."""
        return self._private("_relax_optimizer_checks", relax)

    def enableStableNorm(self, enabled: bool) -> Self:
        """More accurate norms at the price of speed; tuning only."""
        self._popart.set("enableStableNorm", bool(enabled))
        return self

    def enableSyntheticData(self, enabled: bool | int) -> Self:
        """Makes data on the device instead of transferring it: for measuring speed, results mean nothing."""
        self._popart.set("syntheticDataMode", _RANDOM_NORMAL if enabled else 0)
        return self

    def logCycleCount(self, log_cycle_count: bool) -> Self:
        """Whether the cycles of each run are logged."""
        self._popart.set("instrumentWithHardwareCycleCounter", bool(log_cycle_count))
        return self

    def enableProfiling(self, profile_dir: str | None = None) -> Self:
        """Writes a report of every compiled model below a directory."""
        wanted = {
            "debug.allowOutOfMemory": "true",
            "autoReport.directory": profile_dir if profile_dir is not None else ".",
            "autoReport.all": "true",
        }
        outside = environment.poplar_engine_options()
        for name in wanted:
            if name in outside:
                logger.warning("POPLAR_ENGINE_OPTIONS already has %s; options.enableProfiling() replaces it", name)
        self._popart.setEngineOptions({**self._popart.options.get("engineOptions", {}), **wanted})
        return self

    def disableModuleNamescope(self) -> Self:
        """Leaves the names of modules out of the names of operations."""
        return self._private("_module_namescope", False)

    def sourceLocationExcludes(self, excludes: list[str]) -> Self:
        """Paths that are never shown as the origin of an operation."""
        return self._private("_source_location_excludes", list(excludes))

    def appendToLocationExcludes(self, *excludes: str) -> Self:
        """Adds paths that are never shown as the origin of an operation."""
        return self._private("_source_location_excludes", [*self._source_location_excludes, *excludes])

    def updatableNamedBuffers(self, buffers: list[str]) -> Self:
        """Buffers that `copyNamedBuffersToDevice` may change while the model runs."""
        self._popart.set("updatableNamedBuffers", list(buffers))
        return self

    def toDict(self) -> dict[str, Any]:
        """All options in one dict."""
        assert not self.defaultOutputMode(), "An output mode must be picked before serialisation"
        merged = super().toDict()
        for group in (self._training, self._precision, self._jit, self._tensor_locations, self._distributed):
            merged.update(group.toDict())
        merged.update(self._execution_strategy.backendOptions())
        merged.update(self._popart.options)
        return merged

    def clone(self) -> Self:
        """A copy that may be changed."""
        return copy.deepcopy(self)

    def _private(self, name: str, value: Any) -> Self:
        self.checkIsFrozen(name)
        if isinstance(getattr(self, name), bool):
            assert isinstance(value, bool), f"A bool is expected. Received: {type(value)}"
        setattr(self, name, value)
        return self

    def _groups(self) -> dict[str, Any]:
        return {
            "TensorLocations": self._tensor_locations,
            "Distributed": self._distributed,
            "Jit": self._jit,
            "Precision": self._precision,
            "Training": self._training,
            "_Popart": self._popart,
        }
