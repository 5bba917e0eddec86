"""The table of all IPUConfig options: name, type, default and what it does, in the order users see them."""

# The reference's type text spells these hints in the old way, and error messages show it.
from typing import Any, List, Tuple, Union  # noqa: UP035

from openipu.tensorflow.configuration.enums import (
    DeviceConnectionType,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    StochasticRoundingBehaviour,
)
from openipu.tensorflow.configuration.tree import Option

IpuSelection = Union[int, List[int], Tuple[int, ...]]  # noqa: UP006, UP007


def _is_selection(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(type(element) is int for element in value)
    return type(value) is int


def _poplar_options(category: str, library: str) -> Option:
    return Option(f"{category}.poplar_options", dict, {}, f"Options for {library}: text values by name.")


OPTIONS = (
    Option("allow_recompute", bool, False, "Recompute activations of pipeline stages instead of storing them."),
    Option("selection_order", SelectionOrder, SelectionOrder.AUTO, "How shard indices map to the IPUs of a device."),
    Option("serialization_output_folder", str, "", "Folder in which every compiled executable is stored."),
    Option("compilation_poplar_options", dict, {}, "Options for the engine: text values by name."),
    Option("gcl_poplar_options", dict, {}, "Options for the collectives between replicas: text values by name."),
    Option("auto_select_ipus", IpuSelection, [], "How many IPUs each TensorFlow device gets.", _is_selection),
    Option("select_ipus", IpuSelection, [], "The ids of the devices that TensorFlow devices get.", _is_selection),
    _poplar_options("convolutions", "convolutions"),
    Option("device_connection.type", DeviceConnectionType, DeviceConnectionType.ALWAYS, "When to attach to the IPUs."),
    Option(
        "device_connection.version", str, "", "IPU version to compile for when none is attached: ipu1, ipu2, ipu21."
    ),
    Option("device_connection.enable_remote_buffers", bool, False, "Compile for IPUs that have off-chip memory."),
    _poplar_options("slices", "embedding lookups and updates"),
    Option("experimental.always_rearrange_copies_on_the_host", bool, False, "Change data layouts on the host."),
    Option("experimental.enable_remote_buffer_embedding", bool, False, "Keep host embeddings in remote buffers."),
    Option("experimental.enable_prng_stability", bool, False, "Keep what replicas share equal under random rounding."),
    Option("experimental.multi_replica_distribution.process_index", int, 0, "The number of this process."),
    Option("experimental.multi_replica_distribution.process_count", int, 0, "How many processes; 0: not distributed."),
    Option("floating_point_behaviour.inv", bool, False, "Stop at an invalid operation."),
    Option("floating_point_behaviour.div0", bool, False, "Stop at a division by zero."),
    Option("floating_point_behaviour.oflo", bool, False, "Stop at an overflow."),
    Option(
        "floating_point_behaviour.esr",
        StochasticRoundingBehaviour,
        StochasticRoundingBehaviour.OFF,
        "Round float16 results at random.",
    ),
    Option(
        "floating_point_behaviour.nanoo", bool, False, "Overflow of float16 gives NaN instead of the largest value."
    ),
    Option("floating_point_behaviour.set_all", bool, False, "Turn on everything in this category."),
    Option("io_tiles.num_io_tiles", int, 0, "Tiles that only move data, at most 192."),
    Option("io_tiles.place_ops_on_io_tiles", bool, False, "Put operations that only move data on those tiles."),
    Option("io_tiles.available_memory_proportion", float, 0.9, "How much of their memory those tiles may use."),
    Option("ipu_model.compile_ipu_code", bool, True, "Compile device code for the IPU model."),
    Option("ipu_model.tiles_per_ipu", int, 0, "Tiles of the IPU model; 0: as many as the version has."),
    Option("ipu_model.version", str, "ipu2", "IPU version of the model: ipu1, ipu2, ipu21."),
    Option("matmuls.clear_pass_type", bool, False, "Plan forward and backward matrix products alike."),
    _poplar_options("matmuls", "matrix products"),
    Option("norms.use_stable_statistics", bool, False, "Compute mean and variance in two passes."),
    Option(
        "norms.experimental.distributed_batch_norm_replica_group_size",
        int,
        1,
        "How many neighbouring replicas share their batch-norm statistics in training.",
    ),
    Option("optimizations.math.fast", bool, False, "Allow algebra that ignores the rules for NaN and infinity."),
    Option("optimizations.math.dot_strength", bool, True, "Compute small dot products by multiplying and summing."),
    Option("optimizations.prefetch_data_streams", bool, True, "Fetch the next input while computing."),
    Option("optimizations.combine_embedding_lookups", bool, False, "Join lookups in the same table."),
    Option("optimizations.combine_matmuls", bool, False, "Join matrix products that share an operand."),
    Option("optimizations.enable_graph_outlining", bool, True, "Compile repeated parts once."),
    Option("optimizations.merge_infeed_io_copies", bool, True, "Join the copies of one infeed element."),
    Option("optimizations.maximum_cross_replica_sum_buffer_size", int, 0, "Bytes of all-reduces to join."),
    Option("optimizations.maximum_reduce_scatter_buffer_size", int, 0, "Bytes of reduce-scatters to join."),
    Option("optimizations.maximum_inter_ipu_copies_buffer_size", int, 0, "Bytes of copies between IPUs to join."),
    Option("optimizations.maximum_send_recv_cluster_size", int, 0, "Bytes of host transfers to join."),
    Option("optimizations.maximum_reduce_many_buffer_size", int, 0, "Bytes of reductions to join."),
    Option("optimizations.maximum_all_gather_buffer_size", int, 0, "Bytes of all-gathers to join."),
    Option("optimizations.minimum_remote_tensor_size", int, 128, "Bytes below which a tensor stays on the chip."),
    Option(
        "optimizations.merge_remote_buffers",
        MergeRemoteBuffersBehaviour,
        MergeRemoteBuffersBehaviour.IF_BENEFICIAL,
        "Whether remote buffers of the same shape become one.",
    ),
    Option("optimizations.enable_gather_simplifier", bool, True, "Turn gathers into embedding lookups."),
    Option("optimizations.triangular_solve_expander_block_size", int, 0, "Block size of triangular solves; 0: chosen."),
    Option("optimizations.cholesky_block_size", int, 0, "Block size of Cholesky factorisations; 0: chosen."),
    Option("optimizations.enable_fast_math", bool, False, "The old name of optimizations.math.fast."),
    Option("optimizations.enable_dynamic_slice_replacement", bool, True, "Turn dynamic slices into lookups."),
    _poplar_options("pooling", "pooling"),
    Option(
        "scheduling.algorithm",
        SchedulingAlgorithm,
        SchedulingAlgorithm.CHOOSE_BEST,
        "How the order of operations is found.",
    ),
    Option("scheduling.maximum_scheduler_lookahead_depth", int, 5, "How far LOOK_AHEAD looks."),
    Option("scheduling.maximum_scheduler_search_space_size", int, 64, "How many orders LOOK_AHEAD compares."),
)
