"""What to expect of the names of `tensorflow.python.ipu`, where there is something to say (`openipu.compatibility`)."""

from openipu.compatibility import Note, accepted, works
from openipu.tensorflow.configuration.options import OPTIONS

_REGISTERED = works("with a function in Python that is registered for the library: `docs/tensorflow.md`")
_HINT = accepted("a hint for the memory or the layout of data of an IPU; returns its argument")
_TUNING = accepted("tunes hardware that is not here; checked and kept")
_VERIFIED = accepted("verified transfers are a feature of the hardware")
_EVENTS = accepted("there are no event traces: the list is always empty, a warning says what to use")
_REPORTS = works("predicted reports of the profiled programs of this process, marked as estimates")

# Options that change results, what a virtual device is, or what is predicted for IPUs; others are checked and kept.
EFFECTIVE = {
    "allow_recompute",
    "auto_select_ipus",
    "convolutions.poplar_options",
    "device_connection.type",
    "device_connection.version",
    "experimental.multi_replica_distribution.process_count",
    "experimental.multi_replica_distribution.process_index",
    "floating_point_behaviour.div0",
    "floating_point_behaviour.esr",
    "floating_point_behaviour.inv",
    "floating_point_behaviour.oflo",
    "floating_point_behaviour.set_all",
    "io_tiles.num_io_tiles",
    "ipu_model.tiles_per_ipu",
    "ipu_model.version",
    "matmuls.poplar_options",
    "optimizations.maximum_cross_replica_sum_buffer_size",
    "select_ipus",
}

NOTES: dict[str, Note] = {
    "config.ExecutionProfileType": accepted("nothing of TensorFlow 2 used it either"),
    "config.IPUConfig": works("the options:"),
    **{
        f"config.IPUConfig.{option.name}": works(option.doc) if option.name in EFFECTIVE else accepted(option.doc)
        for option in OPTIONS
    },
    "config.KeyId": _VERIFIED,
    "config.VerificationOptions": _VERIFIED,
    "ops.application_compile_op.experimental_application_compile_op": works("in eager mode"),
    "ops.control_flow_ops.barrier": _HINT,
    "ops.custom_ops.cpu_user_operation": _REGISTERED,
    "ops.custom_ops.precompiled_user_op": _REGISTERED,
    "ops.embedding_ops.HostEmbedding": works("a gradient tape must be asked for its `trainable_variables`"),
    "ops.internal_ops.get_current_iteration_counter": works("in loops of `ipu.loops` and in pipelines"),
    "ops.functional_ops.outlined_function": works("the compiler decides what is shared; the options change nothing"),
    "ops.internal_ops.block_recompute": _HINT,
    "ops.internal_ops.recompute": _HINT,
    "ops.internal_ops.remap": _HINT,
    "ops.internal_ops.remap_deduce": _HINT,
    "ops.nn_ops.multi_conv": works("the options are checked and change nothing"),
    "ops.pipelining_ops.PipelineStageOptions": _TUNING,
    "ops.pipelining_ops.RecomputationMode": works("checked against the schedule; the compiler decides what is stored"),
    "ops.pipelining_ops.pipeline": works(
        "the options of memory (offload_*, replicated_*) change what is predicted for an IPU, those of tuning "
        "(*_poplar_options) nothing"
    ),
    "ops.pipelining_ops.recomputation_checkpoint": _HINT,
    "ops.summary_ops.ipu_compile_summary": accepted("the summary is empty, as without profiling in the original"),
    "scopes.outside_compilation_scope": works(
        "what comes out has a static shape; variables are only read inside, and gradients do not go through"
    ),
    "scopes.partials_type": accepted("partial sums have the precision of the backend"),
    "utils.extract_*": _EVENTS,
    "utils.extract_all_strings_from_event_trace": _REPORTS,
    "utils.extract_compile_reports": _REPORTS,
    "utils.extract_execute_reports": _REPORTS,
    "utils.set_report_options": accepted("there are no profiles of hardware"),
    "utils.set_transfer_options": _VERIFIED,
    "utils.set_verification_options": _VERIFIED,
}
