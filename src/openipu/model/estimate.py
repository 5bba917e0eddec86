"""What a real IPU would need for a program under a plan: the types in which predictions are handed around."""

import enum
from collections.abc import Mapping

import attrs
import numpy as np

from openipu.hardware.target import Target
from openipu.model.constants import HOST_BANDWIDTH, HOST_LATENCY, Constant
from openipu.model.options import Options
from openipu.program import Plan, Timeline
from openipu.program.timing import Span


class Pass(enum.Enum):
    """When in a step an operation is carried out; the values are words for people."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


class OperationKind(enum.Enum):
    """What class of kernel an operation would be on an IPU; it decides which formula costs it."""

    MATMUL = "matmul"
    CONVOLUTION = "convolution"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    POOLING = "pooling"
    GATHER = "gather"
    SCATTER = "scatter"
    SORT = "sort"
    RANDOM = "random"
    RELAYOUT = "relayout"
    LINEAR_ALGEBRA = "linear algebra"
    COLLECTIVE = "replica exchange"
    CONTROL = "control"
    HOST_CALL = "host call"


class Category(enum.Enum):
    """What memory of an IPU is used for. All but `TEMPORARIES` is in use for the whole execution."""

    WEIGHTS = "weights"
    OPTIMIZER_STATE = "optimizer state"
    ACCUMULATORS = "gradient accumulators"
    STATE = "other state"
    CONSTANTS = "constants"
    STASH = "stashed activations"
    INPUT_OUTPUT = "input and output buffers"
    CODE = "code and vertex state"
    EXCHANGE = "exchange code"
    TEMPORARIES = "temporaries"


@attrs.frozen
class Operation:
    """One kernel of a step on one IPU; elementwise operations that a compiler would fuse are one.

    Attributes:
      name: unique within the estimate, e.g. "conv2d/convolution.3".
      layer: the path of the layer it comes from, parts joined by "/"; "" when it belongs to none.
      kind: its class.
      stage: the pipeline stage, counted from 0.
      phase: forward, backward or update.
      count: how often it runs per micro-batch (loops); per weight update for operations of an update.
      flops: floating-point operations of one run, a multiply-accumulate counting as two.
      bytes: sizes of its operands and results.
      shape: of its (largest) result.
      dtype: of that result.
      cycles: predicted cycles of one run, with the exchange it needs; the hardware factor is included.
      exchange_cycles: the part of `cycles` in which tiles exchange data.
      temporary_bytes: memory that it needs while it runs, beside operands and results, on the whole IPU.
      code_bytes: vertex code and state on the whole IPU; 0 when it shares the code of an operation like it.
      recomputed: it runs a second time in the backward pass, which `cycles` leaves out.
    """

    name: str
    layer: str
    kind: OperationKind
    stage: int
    phase: Pass
    count: int
    flops: float
    bytes: int
    shape: tuple[int, ...]
    dtype: str
    cycles: float
    exchange_cycles: float
    temporary_bytes: int
    code_bytes: int
    recomputed: bool = False

    @property
    def total_cycles(self) -> float:
        """Cycles of all its runs in one micro-batch (or update)."""
        return self.cycles * self.count


@attrs.frozen
class Stage:
    """One pipeline stage (the whole model, if there is no pipeline) over one micro-batch.

    Attributes:
      index: counted from 0.
      ipu: the IPU of a replica that it runs on.
      layers: the layers in it, in order of their first operation.
      forward, backward, update: predicted seconds; backward includes recomputation.
      copies: seconds of the copies to and from other stages in each pass.
      flops: of forward and backward, without recomputation.
    """

    index: int
    ipu: int
    layers: tuple[str, ...]
    forward: float
    backward: float
    update: float
    copies: float
    flops: float


@attrs.frozen
class LivePoint:
    """Memory that is not always live at one moment of the program.

    Attributes:
      operation: the name of the operation that runs.
      phase: its pass.
      bytes: memory of values that live across or in it, and of its own temporaries.
    """

    operation: str
    phase: Pass
    bytes: int


@attrs.frozen
class Contributor:
    """What part of an IPU's memory one layer takes, at the worst moment of the program.

    Attributes:
      layer: the path of the layer; "" for what belongs to none.
      bytes: by category.
    """

    layer: str
    bytes: Mapping[Category, int]

    @property
    def total(self) -> int:
        """Bytes of all categories."""
        return sum(self.bytes.values())


@attrs.frozen(eq=False)
class IpuMemory:
    """Memory of one IPU of a replica.

    Attributes:
      ipu: its number within the replica.
      categories: bytes by category; temporaries at their peak.
      always_live: bytes per tile that are in use for the whole execution.
      temporaries: bytes per tile at the moment the fullest tile needs most.
      liveness: memory that is not always live, over the operations of one micro-batch and the update.
      contributors: layers by the memory they take, largest first.
      streaming: bytes kept in streaming memory, off the chip.
      limit: bytes of a tile.
      low, high: bytes of the IPU if plans of matrix products come out small, or large: the model's uncertainty.
    """

    ipu: int
    categories: Mapping[Category, int]
    always_live: np.ndarray
    temporaries: np.ndarray
    liveness: tuple[LivePoint, ...]
    contributors: tuple[Contributor, ...]
    streaming: int
    limit: int
    low: int
    high: int

    @property
    def total(self) -> int:
        """Bytes of all categories, temporaries at their peak."""
        return sum(self.categories.values())

    @property
    def tiles(self) -> np.ndarray:
        """Bytes in use on each tile."""
        return self.always_live + self.temporaries

    @property
    def worst_tile(self) -> int:
        """Bytes of the fullest tile."""
        return int(self.tiles.max())

    @property
    def capacity(self) -> int:
        """Bytes of the whole IPU."""
        return self.limit * len(self.always_live)

    @property
    def overflow(self) -> int:
        """Bytes by which the fullest tile exceeds its memory; 0 if it fits."""
        return max(0, self.worst_tile - self.limit)


@attrs.frozen
class Shares:
    """Where the seconds of one step (one micro-batch of every replica) go, on average.

    Attributes:
      compute: tiles compute, on the IPU that the others wait for.
      exchange: tiles of one IPU exchange data.
      stage_copies: stages hand each other activations and gradients.
      bubble: an IPU waits for others of its pipeline; 0 without one.
      replica_exchange: gradients (and shards of state) between replicas.
      update: the optimizer.
      streaming: optimizer state, activations or weights to and from streaming memory.
      host: transfers to and from the host that nothing hides.
      launch: starting the execution, shared by its steps.
    """

    compute: float
    exchange: float
    stage_copies: float
    bubble: float
    replica_exchange: float
    update: float
    streaming: float
    host: float
    launch: float

    @property
    def total(self) -> float:
        """Seconds of one step."""
        return sum(attrs.astuple(self))


@attrs.frozen
class Suggestion:
    """Something to change, and what it would do.

    Attributes:
      option: what to change, in words of no front end ("recomputation").
      how: how both front ends say it, e.g. "ipu_config... / options...".
      saves: bytes of the fullest IPU, per IPU; negative when it needs more.
      seconds: by how much the samples of a step take longer; negative when faster, None when it is not predicted.
      fits: whether this alone makes the program fit.
    """

    option: str
    how: str
    saves: int
    seconds: float | None
    fits: bool


@attrs.frozen(eq=False)
class Estimate:
    """What a real IPU would need. All of it is predicted, nothing measured.

    Attributes:
      program: the program's name.
      target: the kind of IPU.
      plan: how the program is spread.
      options: what else the user asked of an IPU.
      micro_batch: samples of one step of one replica; None when the inputs do not say.
      stages: one for each pipeline stage; one if there is no pipeline.
      operations: all kernels, in program order.
      memory: one for each IPU of a replica.
      shares: where the seconds of one step go.
      timeline: the pipeline of one weight update; None when there is no pipeline.
      spans: that timeline's work in seconds, stage copies included in its passes.
      warnings: what the estimate leaves out or guesses, in sentences.
      constants: the numbers it rests on.
      fed, returned: bytes that go from and to the host in one step of one replica.
    """

    program: str
    target: Target
    plan: Plan
    options: Options
    micro_batch: int | None
    stages: tuple[Stage, ...]
    operations: tuple[Operation, ...]
    memory: tuple[IpuMemory, ...]
    shares: Shares
    timeline: Timeline | None
    spans: tuple[Span, ...]
    warnings: tuple[str, ...]
    constants: tuple[Constant, ...]
    fed: int = 0
    returned: int = 0

    @property
    def ipus(self) -> int:
        """IPUs of all replicas."""
        return len(self.memory) * self.plan.all_replicas

    @property
    def seconds_per_step(self) -> float:
        """Seconds of one step: a micro-batch on every replica."""
        return self.shares.total

    @property
    def seconds_per_execution(self) -> float:
        """Seconds of one execution: all its steps, and the launch."""
        return self.seconds_per_step * self.plan.device_iterations

    @property
    def seconds_per_batch(self) -> float:
        """Seconds per micro-batch of any replica, as Keras counted steps on several replicas."""
        return self.seconds_per_step / self.plan.all_replicas

    @property
    def throughput(self) -> float | None:
        """Samples per second; None when the inputs do not say what a sample is."""
        if self.micro_batch is None:
            return None
        return self.micro_batch * self.plan.all_replicas / self.seconds_per_step

    @property
    def compute_seconds(self) -> float:
        """Seconds of one execution in which IPUs work: without the host's transfers, and without starting it."""
        return (self.shares.total - self.shares.host - self.shares.launch) * self.plan.device_iterations

    @property
    def cycles_per_execution(self) -> int:
        """Cycles of those seconds."""
        return int(self.compute_seconds * self.target.clock_hz)

    @property
    def moments(self) -> tuple[float, float, float, float]:
        """When the upload of one execution begins and ends, and when its download does, in seconds from its start."""
        steps = self.plan.device_iterations
        upload = HOST_LATENCY + self.fed * steps / HOST_BANDWIDTH
        computed = upload + self.compute_seconds
        return 0.0, upload, computed, computed + HOST_LATENCY + self.returned * steps / HOST_BANDWIDTH

    @property
    def cycles_per_step(self) -> float:
        """Cycles of one step."""
        return self.seconds_per_step * self.target.clock_hz

    @property
    def flops_per_step(self) -> float:
        """Floating-point operations of one step of one replica, recomputation left out."""
        return sum(stage.flops for stage in self.stages)

    @property
    def utilisation(self) -> float:
        """Floating-point operations as a share of what the IPUs could do in float16."""
        peak = self.target.peak_flops * len(self.memory)
        return self.flops_per_step / (self.seconds_per_step * peak) if self.seconds_per_step else 0.0

    @property
    def worst(self) -> IpuMemory:
        """The IPU with the fullest tile."""
        return max(self.memory, key=lambda memory: memory.worst_tile)

    @property
    def fits(self) -> bool:
        """Whether no tile overflows."""
        return not self.worst.overflow
