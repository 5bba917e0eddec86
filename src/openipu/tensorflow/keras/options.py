"""What a model in scope remembers: its IPU options and the programs compiled for it."""

import enum
from typing import TYPE_CHECKING, Any

import attrs

from openipu.program import Reduction
from openipu.runtime import CompiledPrograms
from openipu.tensorflow.keras import option_rules as rules
from openipu.tensorflow.keras.versions import KerasVersion

if TYPE_CHECKING:
    from openipu.tensorflow.executor.strategy import OnIPUs


class ReplicatedMetricReductionMethod(enum.Enum):
    """How the metrics of several replicas become what the logs show."""

    NONE = 1
    LIST = 2
    SUM = 3
    MEAN = 4


@attrs.define
class Options:
    """The options set by the `set_*` methods of a model.

    Both setters of accumulation share `reduction`, as in the original: the last call wins.
    """

    asynchronous_callbacks: bool = False
    infeed: dict[str, Any] = attrs.Factory(dict)
    outfeed: dict[str, Any] = attrs.Factory(dict)
    metric_reduction: ReplicatedMetricReductionMethod = ReplicatedMetricReductionMethod.NONE
    reduction: Reduction = Reduction.SUM
    accumulation: int | None = None
    accumulation_kwargs: dict[str, Any] = attrs.Factory(dict)
    use_v2_optimizer: bool = False
    pipeline_accumulation: int | None = None
    device_mapping: list[int] | None = None
    accumulate_outfeed: bool | None = None
    pipelining_kwargs: dict[str, Any] = attrs.Factory(dict)

    def set_infeed(self, kwargs: dict[str, Any]) -> None:
        """Replace the options of the feed to the device."""
        rules.check_infeed(kwargs)
        self.infeed = dict(kwargs)

    def set_outfeed(self, kwargs: dict[str, Any]) -> None:
        """Replace the options of the feed from the device."""
        rules.check_outfeed(kwargs)
        self.outfeed = dict(kwargs)

    def set_replication(self, method: Any) -> None:
        """Choose how metrics of replicas are reduced."""
        self.metric_reduction = rules.parse(ReplicatedMetricReductionMethod, method)

    def set_accumulation(self, steps: int | None, method: Any, use_v2: bool, kwargs: dict[str, Any]) -> None:
        """Accumulate gradients of models that are not pipelined."""
        rules.check_accumulation_steps(steps)
        rules.check_accumulation_kwargs(kwargs)
        self.reduction = rules.parse_reduction(method)
        self.accumulation = steps if steps is not None else self.accumulation
        self.use_v2_optimizer = bool(use_v2)
        self.accumulation_kwargs = dict(kwargs)

    def set_pipelining(self, steps: int | None, mapping: Any, outfeed: bool | None, method: Any,
                       kwargs: dict[str, Any]) -> None:  # fmt: skip
        """Options of pipelined models; what is None keeps its value, the keyword arguments are replaced."""
        rules.check_accumulation_steps(steps)
        rules.check_device_mapping(mapping)
        rules.check_pipelining_kwargs(kwargs)
        self.reduction = rules.parse_reduction(method)
        self.pipeline_accumulation = steps if steps is not None else self.pipeline_accumulation
        self.device_mapping = list(mapping) if mapping is not None else self.device_mapping
        self.accumulate_outfeed = outfeed if outfeed is not None else self.accumulate_outfeed
        self.pipelining_kwargs = dict(kwargs)


@attrs.define(eq=False)
class State:
    """Everything openipu keeps about one model."""

    keras: KerasVersion
    strategy: "OnIPUs"
    options: Options
    compiled: CompiledPrograms = attrs.Factory(CompiledPrograms)
    stages: Any = None

    def forget(self) -> None:
        """Forget compiled programs: something they were compiled for has changed."""
        self.compiled.clear()
