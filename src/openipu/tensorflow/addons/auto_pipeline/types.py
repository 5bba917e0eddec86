"""What is known of layers, of stages made of them, of models, and of the IPUs they are to run on: plain dictionaries.

Which fields the original's dictionaries have is not known; these are openipu's own. Cycles are those of one IPU,
sizes are bytes.
"""

from typing import TypedDict


class CycleInfo(TypedDict):
    """Cycles: of a forward and a backward pass over one micro-batch, and of one weight update."""

    forward: float
    backward: float
    update: float


class MemoryBaseInfo(TypedDict):
    """Memory that layers and ranges of layers have alike.

    Fields:
      parameters: weights, accumulators of their gradients and other state, by the name of the layer.
      code: code and vertex state, by the type of the layer: layers of one type share it.
      inputs: what of the inputs waits for the backward pass.
      activations: what else of one micro-batch does.
      outputs: results.
      temporary: what comes and goes beside that, at the worst moment.
    """

    parameters: dict[str, int]
    code: dict[str, int]
    inputs: int
    activations: int
    outputs: int
    temporary: int


class MemoryLayerInfo(MemoryBaseInfo):
    """Memory of one layer."""


class MemoryRangeInfo(MemoryBaseInfo):
    """Memory of consecutive layers on one IPU; `inputs` are those of the first, `outputs` those of the last.

    Fields:
      total: all of it in a pipeline, activations as often as micro-batches wait; 0 until that is known.
      last: what of `activations` the last layer alone takes.
    """

    total: int
    last: int


class LayerInfo(TypedDict):
    """One call of a layer; `type` is the same for calls that compute the same on the same shapes."""

    name: str
    type: str
    cycles: CycleInfo
    memory: MemoryLayerInfo


class RangeInfo(TypedDict):
    """Consecutive layers on one IPU; `transfer` are cycles in which values come from other IPUs."""

    layers: list[str]
    cycles: CycleInfo
    transfer: float
    memory: MemoryRangeInfo


class ModelInfo(TypedDict):
    """A model.

    Fields:
      name, batch_size: of the model, and the micro-batch of all that follows.
      layers: in the order in which they run.
      crossing: bytes that a cut after each layer but the last would send to the next IPU.
      joined: whether each layer but the last must stay with the next one, because they share weights.
      assignments: for how many entries of `get_pipeline_stage_assignment` each layer stands; more than one if it is
        a nested model that cannot be cut.
    """

    name: str
    batch_size: int
    layers: list[LayerInfo]
    crossing: list[int]
    joined: list[bool]
    assignments: list[int]


class ConnectionInfo(TypedDict):
    """The way from one IPU to the next: bytes per cycle, each way, and cycles until the first byte."""

    bandwidth: float
    latency: float


class IPUClusterInfo(TypedDict):
    """The IPUs of a replica: how many, the memory of each, and the ways between neighbours, one fewer than IPUs."""

    n_ipu: int
    memory: int
    connections: list[ConnectionInfo]


class AutoPipelineConfiguration(TypedDict, total=False):
    """How to divide; everything may be left out.

    Fields:
      memory_proportion: the share of an IPU's memory that a stage may take; 1 by default.
      schedule: `grouped` (the default), `interleaved` or `sequential`; it says how many micro-batches wait in a stage.
      gradient_accumulation_count: over how many micro-batches a weight update is shared out; otherwise updates, which
        are the same whatever the stages, count for nothing.
      compile_only: whether profiles are taken without running anything, which is always so here.
    """

    memory_proportion: float
    schedule: str
    gradient_accumulation_count: int
    compile_only: bool
