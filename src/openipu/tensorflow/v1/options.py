"""The configuration functions of TensorFlow 1 programs: each sets attributes of an `IPUConfig` and returns it."""

from collections.abc import Mapping
from typing import Any

from openipu.tensorflow.configuration.enums import (
    DeviceConnectionType,
    ExecutionProfileType,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    StochasticRoundingBehaviour,
)
from openipu.tensorflow.configuration.system import IPUConfig

_ALGORITHMS = {
    "": SchedulingAlgorithm.CHOOSE_BEST,
    "Clustering": SchedulingAlgorithm.CLUSTERING,
    "PostOrder": SchedulingAlgorithm.POST_ORDER,
    "LookAhead": SchedulingAlgorithm.LOOK_AHEAD,
    "ShortestPath": SchedulingAlgorithm.SHORTEST_PATH,
}


def create_ipu_config(
    profiling: bool = False,
    enable_ipu_events: bool = False,
    use_poplar_text_report: bool = False,
    use_poplar_cbor_report: bool = False,
    profile_execution: ExecutionProfileType | bool | None = None,
    enable_poplar_serialized_graph: bool = False,
    report_every_nth_execution: int = 0,
    max_report_size: int = 0x10000000,
    report_directory: str = "",
    scheduler_selection: SchedulingAlgorithm | str = SchedulingAlgorithm.CHOOSE_BEST,
    always_rearrange_copies_on_the_host: bool = False,
    merge_infeed_io_copies: bool = False,
    disable_graph_outlining: bool = False,
    retain_control_dependencies: bool = False,
    max_cross_replica_sum_buffer_size: int = 0,
    max_inter_ipu_copies_buffer_size: int = 0,
    max_scheduler_lookahead_depth: int = 5,
    max_scheduler_search_space_size: int = 64,
    prefetch_data_streams: bool = True,
    selection_order: SelectionOrder | None = SelectionOrder.AUTO,
    enable_experimental_remote_buffer_embedding: bool = False,
) -> IPUConfig:
    """A new configuration.

    With `profiling` every program gets a report of what is predicted for an IPU, in `report_directory` or the working
    directory; other arguments about traces and reports are checked, and otherwise ignored.
    """
    if profiling and enable_ipu_events:
        raise Exception("`profiling` and `enable_ipu_events` are mutually exclusive")
    if profile_execution and not profiling:
        raise Exception("`profiling` is required when `profile_execution` is set")
    opts = IPUConfig()
    if profiling:
        where = {"autoReport.directory": report_directory} if report_directory else {}
        opts.compilation_poplar_options = {"autoReport.all": "true", **where}
    if isinstance(scheduler_selection, str):
        if scheduler_selection not in _ALGORITHMS:
            raise ValueError(
                f"scheduler_selection must be one of {', '.join(map(repr, _ALGORITHMS))}. "
                f"Received: scheduler_selection={scheduler_selection!r}."
            )
        scheduler_selection = _ALGORITHMS[scheduler_selection]
    opts.scheduling.algorithm = scheduler_selection
    opts.scheduling.maximum_scheduler_lookahead_depth = max_scheduler_lookahead_depth
    opts.scheduling.maximum_scheduler_search_space_size = max_scheduler_search_space_size
    opts.selection_order = selection_order or SelectionOrder.AUTO
    opts.experimental.always_rearrange_copies_on_the_host = always_rearrange_copies_on_the_host
    opts.experimental.enable_remote_buffer_embedding = enable_experimental_remote_buffer_embedding
    optimizations = opts.optimizations
    optimizations.merge_infeed_io_copies = merge_infeed_io_copies
    optimizations.enable_graph_outlining = not disable_graph_outlining
    optimizations.maximum_cross_replica_sum_buffer_size = max_cross_replica_sum_buffer_size
    optimizations.maximum_inter_ipu_copies_buffer_size = max_inter_ipu_copies_buffer_size
    optimizations.prefetch_data_streams = prefetch_data_streams
    return opts


def set_serialization_options(opts: IPUConfig, output_folder: str = "") -> IPUConfig:
    """Where executables are written."""
    opts.serialization_output_folder = output_folder
    return opts


def set_optimization_options(
    opts: IPUConfig,
    combine_embedding_lookups: bool = False,
    combine_matmuls: bool = False,
    max_cross_replica_sum_buffer_size: int = 0,
    max_reduce_scatter_buffer_size: int = 0,
    max_inter_ipu_copies_buffer_size: int = 0,
    max_send_recv_cluster_size: int = 0,
    minimum_remote_tensor_size: int = 128,
    merge_remote_buffers: MergeRemoteBuffersBehaviour = MergeRemoteBuffersBehaviour.NO_MERGING,
    gather_simplifier: bool = True,
    triangular_solve_expander_block_size: int = 0,
    cholesky_block_size: int = 0,
    enable_fast_math: bool = False,
) -> IPUConfig:
    """What the original's compiler may rearrange."""
    optimizations = opts.optimizations
    optimizations.combine_embedding_lookups = combine_embedding_lookups
    optimizations.combine_matmuls = combine_matmuls
    optimizations.maximum_cross_replica_sum_buffer_size = max_cross_replica_sum_buffer_size
    optimizations.maximum_reduce_scatter_buffer_size = max_reduce_scatter_buffer_size
    optimizations.maximum_inter_ipu_copies_buffer_size = max_inter_ipu_copies_buffer_size
    optimizations.maximum_send_recv_cluster_size = max_send_recv_cluster_size
    optimizations.minimum_remote_tensor_size = minimum_remote_tensor_size
    optimizations.merge_remote_buffers = merge_remote_buffers
    optimizations.enable_gather_simplifier = gather_simplifier
    optimizations.triangular_solve_expander_block_size = triangular_solve_expander_block_size
    optimizations.cholesky_block_size = cholesky_block_size
    optimizations.math.fast = enable_fast_math
    return opts


def set_norm_options(
    opts: IPUConfig,
    use_stable_statistics: bool = False,
    experimental_distributed_batch_norm_replica_group_size: int = 1,
) -> IPUConfig:
    """How normalisations compute their statistics."""
    opts.norms.use_stable_statistics = use_stable_statistics
    group = experimental_distributed_batch_norm_replica_group_size
    opts.norms.experimental.distributed_batch_norm_replica_group_size = group
    return opts


def set_transfer_options(opts: IPUConfig, use_verified_transfers: bool = False) -> IPUConfig:
    """Verified transfers are a feature of the hardware: ignored."""
    return opts


def set_verification_options(opts: IPUConfig, verification_options: Any) -> IPUConfig:
    """Verified transfers are a feature of the hardware: ignored."""
    return opts


def set_compilation_options(opts: IPUConfig, compilation_options: Mapping[str, str] | None = None) -> IPUConfig:
    """Options of the original's compiler; those of several calls are kept together."""
    opts.compilation_poplar_options = _joined(
        "compilation_options", opts.compilation_poplar_options, compilation_options
    )
    return opts


def set_convolution_options(opts: IPUConfig, convolution_options: Mapping[str, str] | None = None) -> IPUConfig:
    """Options of convolutions; those of several calls are kept together."""
    group = opts.convolutions
    group.poplar_options = _joined("convolution_options", group.poplar_options, convolution_options)
    return opts


def set_matmul_options(
    opts: IPUConfig, matmul_options: Mapping[str, str] | None = None, clear_pass_type: bool = False
) -> IPUConfig:
    """Options of matrix products; those of several calls are kept together."""
    opts.matmuls.poplar_options = _joined("matmul_options", opts.matmuls.poplar_options, matmul_options)
    opts.matmuls.clear_pass_type = clear_pass_type
    return opts


def set_pooling_options(opts: IPUConfig, pooling_options: Mapping[str, str] | None = None) -> IPUConfig:
    """Options of pooling; those of several calls are kept together."""
    opts.pooling.poplar_options = _joined("pooling_options", opts.pooling.poplar_options, pooling_options)
    return opts


def set_gcl_options(opts: IPUConfig, gcl_options: Mapping[str, str] | None = None) -> IPUConfig:
    """Options of collectives; those of several calls are kept together."""
    opts.gcl_poplar_options = _joined("gcl_options", opts.gcl_poplar_options, gcl_options)
    return opts


def set_report_options(
    opts: IPUConfig,
    graph_options: Mapping[str, str] | None = None,
    execution_options: Mapping[str, str] | None = None,
) -> IPUConfig:
    """Options of the original's reports: checked, and otherwise ignored."""
    _joined("graph_options", {}, graph_options)
    _joined("execution_options", {}, execution_options)
    return opts


def set_ipu_model_options(
    opts: IPUConfig, compile_ipu_code: bool = True, tiles_per_ipu: int | None = None, ipu_model_version: str = "ipu2"
) -> IPUConfig:
    """Options of the software model."""
    opts.ipu_model.compile_ipu_code = compile_ipu_code
    opts.ipu_model.tiles_per_ipu = tiles_per_ipu or 0
    opts.ipu_model.version = ipu_model_version
    return opts


def set_recomputation_options(opts: IPUConfig, allow_recompute: bool = True) -> IPUConfig:
    """Whether activations may be computed again."""
    opts.allow_recompute = allow_recompute
    return opts


def set_floating_point_behaviour_options(
    opts: IPUConfig, inv: bool = True, div0: bool = True, oflo: bool = True, esr: bool = True, nanoo: bool = True
) -> IPUConfig:
    """Which invalid numbers stop a program, and how float16 is rounded."""
    behaviour = opts.floating_point_behaviour
    behaviour.inv, behaviour.div0, behaviour.oflo, behaviour.nanoo = inv, div0, oflo, nanoo
    behaviour.esr = StochasticRoundingBehaviour.from_bool(esr)
    return opts


def set_io_tile_options(
    opts: IPUConfig,
    num_io_tiles: int,
    place_ops_on_io_tiles: bool | None = None,
    io_tile_available_memory_proportion: float = 0.9,
) -> IPUConfig:
    """Tiles that are kept for transfers."""
    opts.io_tiles.num_io_tiles = num_io_tiles
    if place_ops_on_io_tiles is not None:
        opts.io_tiles.place_ops_on_io_tiles = place_ops_on_io_tiles
    opts.io_tiles.available_memory_proportion = io_tile_available_memory_proportion
    return opts


def auto_select_ipus(opts: IPUConfig, num_ipus: int | list[int] | tuple[int, ...]) -> IPUConfig:
    """So many IPUs for each TensorFlow device."""
    _check_unselected(opts)
    if not isinstance(num_ipus, int | list | tuple):
        raise Exception("`num_ipus` must be an integer, list or tuple.")
    opts.auto_select_ipus = num_ipus
    return opts


def select_ipus(opts: IPUConfig, indices: list[int] | tuple[int, ...]) -> IPUConfig:
    """These devices of the system, one for each TensorFlow device."""
    _check_unselected(opts)
    if not isinstance(indices, list | tuple):
        raise Exception("`indices` must be a list or tuple.")
    if len(set(indices)) != len(indices):
        raise Exception("All device indices in `indices` must be unique.")
    opts.select_ipus = indices
    return opts


def set_ipu_connection_type(
    opts: IPUConfig,
    connection_type: DeviceConnectionType = DeviceConnectionType.ALWAYS,
    ipu_version: str = "",
    enable_remote_buffers: bool = False,
) -> IPUConfig:
    """When a program attaches to its IPUs."""
    opts.device_connection.type = connection_type
    opts.device_connection.version = ipu_version
    opts.device_connection.enable_remote_buffers = enable_remote_buffers
    return opts


def set_experimental_multi_replica_distribution_options(
    opts: IPUConfig, process_count: int, process_index: int
) -> IPUConfig:
    """Which part of the replicas belong to this process."""
    distribution = opts.experimental.multi_replica_distribution
    distribution.process_count, distribution.process_index = process_count, process_index
    return opts


def _check_unselected(opts: IPUConfig) -> None:
    if opts.auto_select_ipus or opts.select_ipus:
        raise Exception("IPU devices have already been configured.")


def _joined(argument: str, before: Mapping[str, str], added: Mapping[str, str] | None) -> dict[str, str]:
    if added is not None and not isinstance(added, Mapping):
        raise TypeError(f"{argument} must be a dict of strings. Received: {argument}={added!r}.")
    return {**before, **(added or {})}
