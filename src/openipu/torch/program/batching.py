"""PopTorch's batch algebra: how one host batch becomes micro-batches, and how their results become one again."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from openipu.torch.enums import CommGroupType, OutputMode
from openipu.torch.exceptions import Error
from openipu.torch.options import Options

if TYPE_CHECKING:
    from openipu.program import Layout


@attrs.frozen
class Batching:
    """The numbers that cut a batch.

    Attributes:
      device_iterations: weight updates (training) or micro-batches (inference) of one replica per call.
      accumulation: micro-batches per weight update; 1 in inference.
      replicas: copies of the model.
      group_size: replicas that take the same data.
      group_type: which replicas form a group.
      instances: processes that run the model together, each with such batches of its own.
    """

    device_iterations: int = 1
    accumulation: int = 1
    replicas: int = 1
    group_size: int = 1
    group_type: CommGroupType = CommGroupType.Consecutive
    instances: int = 1

    @property
    def steps(self) -> int:
        """Micro-batches of one replica per call."""
        return self.device_iterations * self.accumulation

    @property
    def layout(self) -> "Layout":
        """How the replicas' values are laid out."""
        # Not with the module: loaders count batches in processes that never load JAX.
        from openipu.program import Layout

        return Layout(self.replicas, shared=self.instances > 1)

    @property
    def groups(self) -> int:
        """Groups of replicas, each with data of its own."""
        return self.replicas // self.group_size

    @property
    def pieces(self) -> int:
        """Micro-batches that one host batch is cut into."""
        return self.steps * self.groups


def batching_of(options: Options, training: bool, instances: int = 1) -> Batching:
    """The numbers that options mean, with so many instances that run together."""
    return Batching(
        device_iterations=options.device_iterations,
        accumulation=options.Training.gradient_accumulation if training else 1,
        replicas=options.replication_factor,
        group_size=options.input_group_size,
        group_type=CommGroupType(options.input_cgt),
        instances=instances,
    )


def micro_batch_shape(shape: Sequence[int], batching: Batching) -> tuple[int, ...]:
    """The shape that `forward` sees of an input with the given shape; refuses what cannot be cut evenly."""
    pieces = batching.pieces
    rows = shape[0] if len(shape) else 1
    if rows % pieces or rows < pieces:
        raise AssertionError(
            f"Invalid batch dimension: In the input {list(shape)}, the batch dimension ({rows}) must be a multiple of "
            f"Options.deviceIterations({batching.device_iterations}) * "
            f"(Options.replicationFactor({batching.replicas}) / "
            f"Options.inputReplicaGrouping.input_group_size({batching.group_size})) * "
            f"Options.Training.gradientAccumulation({batching.accumulation}) = {pieces} because it is used to "
            "calculate the batch size which will be executed on the device in any given iteration. For a full "
            "explanation see the batching semantics page of the documentation."
        )
    return (rows // pieces, *shape[1:]) if len(shape) else ()


def to_feed(batch: np.ndarray, batching: Batching) -> np.ndarray:
    """A host batch with the axes of a feed, [steps, replica, micro-batch...]; no replica axis for one replica.

    A view of `batch` unless replicas share data.
    """
    shape = micro_batch_shape(batch.shape, batching)
    cut = batch.reshape(batching.steps, batching.groups, *shape)
    if batching.group_size > 1:
        cut = cut[:, group_of_replicas(batching)]
    return cut.reshape(batching.layout.shape(shape, batching.steps))


def group_of_replicas(batching: Batching) -> np.ndarray:
    """The input group of every replica."""
    replicas = np.arange(batching.replicas)
    if batching.group_type is CommGroupType.Orthogonal:
        return replicas % batching.groups
    return replicas // batching.group_size


def check_output_mode(mode: OutputMode, period: int, batching: Batching) -> None:
    """Refuses a return period that does not fit the device iterations."""
    if mode is not OutputMode.EveryN:
        return
    if period > batching.device_iterations:
        raise Error("Return period must be <= to the number of batches per step")
    if batching.device_iterations % period:
        raise Error("Return period must be a factor of the number of batches per step")


def multiplier(mode: OutputMode, period: int, batching: Batching) -> int:
    """How many times the rows of a micro-batch's result come back."""
    return {
        OutputMode.All: batching.steps * batching.replicas,
        OutputMode.EveryN: batching.steps * batching.replicas // period,
        OutputMode.Final: batching.replicas,
        OutputMode.Sum: batching.replicas,
    }[mode]


def to_result(outputs: Any, mode: OutputMode, period: int, batching: Batching) -> Any:
    """What the program gets of the outputs of all steps of one execution.

    Args:
      outputs: an array [steps, replica, micro-batch...], without the replica axis for one replica.
      mode: the output mode.
      period: the return period, for EveryN.
      batching: how the batch was cut.

    Returns:
      An array with the rows of all returned micro-batches along its first axis.
    """
    check_output_mode(mode, period, batching)
    lead = 1 + len(batching.layout.axes)
    if mode is OutputMode.Final:
        kept = outputs[-1:]
    elif mode is OutputMode.Sum:
        # In the type of the values: the device sums in place and does not widen.
        kept = outputs.sum(0, keepdims=True, dtype=outputs.dtype)
    elif mode is OutputMode.EveryN:
        iterations = outputs.reshape(batching.device_iterations, batching.accumulation, *outputs.shape[1:])
        kept = iterations[period - 1 :: period].reshape(-1, *outputs.shape[1:])
    else:
        kept = outputs
    return merge_rows(kept, lead)


def merge_rows(values: Any, lead: int) -> Any:
    """The leading axes and the rows of micro-batches as one axis; a lone scalar stays a scalar."""
    count = int(np.prod(values.shape[:lead]))
    shape = values.shape[lead:]
    if count == 1:
        return values.reshape(shape)
    return values.reshape(count * shape[0], *shape[1:]) if shape else values.reshape(count)
