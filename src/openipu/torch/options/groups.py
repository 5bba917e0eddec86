"""The groups of `poptorch.Options`: training, precision, tracing and processes."""

import warnings
from typing import Any, Self

import torch

from openipu import environment
from openipu.torch.enums import MeanReductionStrategy, ReductionType
from openipu.torch.options.base import OptionsDict
from openipu.torch.options.popart import _PopartOptions


class _TrainingOptions(OptionsDict):
    """Options that only training models use."""

    def __init__(self, popart_options: _PopartOptions) -> None:
        self._popart = popart_options
        super().__init__(
            gradient_accumulation=1,
            accumulation_and_replication_reduction_type=ReductionType.Mean,
            meanAccumulationAndReplicationReductionStrategy=MeanReductionStrategy.Post,
        )

    def gradientAccumulation(self, gradient_accumulation: int) -> Self:
        """Micro-batches per weight update."""
        return self.set(gradient_accumulation=gradient_accumulation)

    def accumulationAndReplicationReductionType(self, reduction_type: ReductionType) -> Self:
        """How the gradients of accumulated micro-batches, and of replicas, become one."""
        if reduction_type not in (ReductionType.Mean, ReductionType.Sum):
            raise ValueError(
                "accumulationAndReplicationReductionType must be set to poptorch.ReductionType.Mean or "
                "poptorch.ReductionType.Sum"
            )
        return self.set(accumulation_and_replication_reduction_type=ReductionType(reduction_type))

    def setMeanAccumulationAndReplicationReductionStrategy(
        self, mean_reduction_strategy: MeanReductionStrategy
    ) -> Self:
        """When a mean of gradients is divided."""
        return self.set(meanAccumulationAndReplicationReductionStrategy=mean_reduction_strategy)

    def setAutomaticLossScaling(self, enabled: bool) -> Self:
        """Whether the loss is scaled by what the gradients of earlier updates suggest."""
        assert isinstance(enabled, bool), f"setAutomaticLossScaling needs a bool. Received: {type(enabled)}"
        self._popart.set("automaticLossScalingSettings.enabled", enabled)
        return self

    def setConvolutionDithering(self, enabled: bool) -> Self:
        """Whether convolutions start on different tiles; tuning only. Replaces all other convolution options."""
        assert isinstance(enabled, bool), f"setConvolutionDithering needs a bool. Received: {type(enabled)}"
        self._popart.set("convolutionOptions", {"enableConvDithering": "true" if enabled else "false"})
        return self


class _PrecisionOptions(OptionsDict):
    """Options about number formats."""

    def __init__(self, popart_options: _PopartOptions) -> None:
        self._popart = popart_options
        super().__init__()

    def halfFloatCasting(self, half_float_casting: Any) -> Self:
        """Without effect; kept for older programs."""
        warnings.warn("halfFloatCasting is deprecated and has no effect.", FutureWarning, stacklevel=2)
        return self

    def runningStatisticsAlwaysFloat(self, value: bool) -> Self:
        """Without effect; kept for older programs."""
        if not isinstance(value, bool):
            raise ValueError("runningStatisticsAlwaysFloat needs to be set to a bool")
        warnings.warn("runningStatisticsAlwaysFloat is deprecated and has no effect.", FutureWarning, stacklevel=2)
        return self

    def enableFloatingPointExceptions(self, enabled: bool) -> Self:
        """Whether an execution that divides by zero, overflows or leaves the domain of an operation fails."""
        assert isinstance(enabled, bool), "enableFloatingPointExceptions needs to be set to a bool"
        self._popart.set("enableFloatingPointChecks", enabled)
        return self

    def enableStochasticRounding(self, enabled: bool) -> Self:
        """Whether float16 results are rounded at random."""
        assert isinstance(enabled, bool), "enableStochasticRounding needs to be set to a bool"
        self._popart.set("enableStochasticRounding", enabled)
        return self

    def setPartialsType(self, dtype: torch.dtype) -> Self:
        """The type of partial sums; tuning only. Replaces all other convolution options."""
        names = {torch.float: "float", torch.half: "half"}
        if dtype not in names:
            raise ValueError("parameter to setPartialsType should be eithertorch.float or torch.half")
        self._popart.set("partialsTypeMatMuls", names[dtype])
        self._popart.set("convolutionOptions", {"partialsType": names[dtype]})
        return self


class _JitOptions(OptionsDict):
    """Options of a way of capturing models that is gone."""

    def traceModel(self, trace_model: bool) -> Self:
        """Without effect; True is refused."""
        warnings.warn("Jit.traceModel is deprecated and has no effect.", FutureWarning, stacklevel=2)
        if trace_model:
            raise ValueError("options.Jit.traceModel(True) is no longer supported")
        return self


class _DistributedOptions(OptionsDict):
    """Which of several processes this one is."""

    def __init__(self) -> None:
        super().__init__(num_distributed_processes=1, distributed_process_id=0, ipuof_configs={})
        self.setEnvVarNames("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")

    def disable(self) -> Self:
        """One process, whatever launched it."""
        return self.configureProcessId(0, 1)

    def setEnvVarNames(self, var_num_processes: str, var_process_id: str) -> Self:
        """Reads the number of processes and the number of this one from the environment, now."""
        number = environment.integer(var_num_processes, 1)
        return self.configureProcessId(environment.integer(var_process_id, 0), number)

    def configureProcessId(self, process_id: int, num_processes: int) -> Self:
        """Says which process of how many this is."""
        return self.set(distributed_process_id=process_id, num_distributed_processes=num_processes)

    @property
    def processId(self) -> int:
        """The number of this process, counted from 0."""
        return self("distributed_process_id")

    @property
    def numProcesses(self) -> int:
        """How many processes run the program."""
        return self("num_distributed_processes")
