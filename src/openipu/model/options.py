"""What users ask of a real IPU beyond the plan: options that change memory and time, and never the results."""

import enum

import attrs
from attrs.validators import ge, in_, le


class Partials(enum.Enum):
    """The type in which matrix products and convolutions of float16 values are summed up."""

    HALF = "half"
    FLOAT = "float"


class Recompute(enum.Enum):
    """Which activations are computed again in the backward pass."""

    NONE = "none"
    # Only a stage's inputs are kept.
    STAGE = "stage"
    # Only marked values (checkpoints) are kept, and a stage's inputs.
    CHECKPOINTS = "checkpoints"
    # All but results of matrix products and convolutions: what is cheap to compute again.
    CHEAP = "cheap"


_share = attrs.validators.and_(ge(0.0), le(1.0))


@attrs.frozen
class Options:
    """What a front end's options mean to an IPU.

    Attributes:
      partials: the type of partial sums of float16 products.
      matmul_proportion: how much of a tile's memory temporaries of matrix products may take.
      convolution_proportion: the same for convolutions.
      stage_proportions: pairs of an IPU and its proportion, where IPUs differ.
      recompute: which activations are computed again.
      offload_optimizer_state: optimizer state lives in streaming memory.
      offload_weights: so do weights.
      offload_activations: so do stashed activations.
      offload_accumulators: so do gradient accumulators.
      shard_optimizer_state: every replica keeps a part of the optimizer state.
      shard_weights: every replica keeps a part of the weights.
      stochastic_rounding: results in float16 are rounded at random.
      io_tiles: tiles set aside for transfers, so that these overlap with computation.
      prefetch_depth: batches kept ready on the host's side of the stream.
      overlap_host: transfers take place while the IPU computes.
      shared_stream: data of all replicas goes through one process of the host.
      collective_buffer: gradients are exchanged between replicas in buffers of so many bytes; 0: each on its own.
      synthetic_data: nothing goes between host and IPU.
      launch_seconds: what starting one execution costs the host; None takes the constant of the model.
    """

    partials: Partials = attrs.field(default=Partials.FLOAT, validator=in_(Partials))
    matmul_proportion: float = attrs.field(default=0.6, validator=_share)
    convolution_proportion: float = attrs.field(default=0.6, validator=_share)
    stage_proportions: tuple[tuple[int, float], ...] = ()
    recompute: Recompute = attrs.field(default=Recompute.NONE, validator=in_(Recompute))
    offload_optimizer_state: bool = False
    offload_weights: bool = False
    offload_activations: bool = False
    offload_accumulators: bool = False
    shard_optimizer_state: bool = False
    shard_weights: bool = False
    stochastic_rounding: bool = False
    io_tiles: int = attrs.field(default=0, validator=ge(0))
    prefetch_depth: int = attrs.field(default=1, validator=ge(1))
    overlap_host: bool = False
    shared_stream: bool = False
    collective_buffer: int = attrs.field(default=0, validator=ge(0))
    synthetic_data: bool = False
    launch_seconds: float | None = None
