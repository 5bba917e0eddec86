"""Names of `tensorflow.python.ipu` that openipu does not implement: they exist, and say so when they are used."""

from typing import Any

from openipu.tensorflow.refusals import Refused, refused_class, refused_function

_VARIABLES = Refused(
    "variables of all strategies are TensorFlow's own",
    "Make variables in strategy.scope().",
    classes=(
        "IPUDistributedVariable",
        "IPUMirroredVariable",
        "IPUOnReadPolicy",
        "IPUOnWritePolicy",
        "IPUSyncOnReadVariable",
    ),
)
_OFFLINE_RUNNER = "it writes or reads files of the offline Poplar runner, which runs on IPU hardware only"
_STORE = "Store data with tf.data.Dataset.save and variables with tf.train.Checkpoint."
_HARDWARE = "it makes or runs code for IPU hardware, which openipu does not have"

_MPI = "it spread the programs of TensorFlow 1 over processes with MPI, which openipu does not use"
_DISTRIBUTED = "Use ipu.distributed.PopDistStrategy, in processes that poprun starts."
_COLLECTIVES = "Use ipu.distributed.allgather, allreduce and broadcast."
_HOROVOD_OPS = ("horovod_allgather", "horovod_allreduce", "horovod_broadcast")

TABLE: dict[str, Refused] = {
    "dataset_extractor": Refused(
        _OFFLINE_RUNNER,
        _STORE,
        functions=("dataset_extractor", "export_variables", "get_variable_handles", "import_variables"),
    ),
    "distributed.popdist_strategy": _VARIABLES,
    "horovod": Refused(_MPI, _COLLECTIVES, functions=("allgather", "allreduce", "broadcast", *_HOROVOD_OPS)),
    "horovod.basics": Refused(_MPI, _COLLECTIVES, classes=("HorovodBasics",)),
    "horovod.ipu_horovod_strategy": Refused(_MPI, _DISTRIBUTED, classes=("IPUHorovodExtended", "IPUHorovodStrategy")),
    "horovod.ipu_multi_replica_strategy": Refused(
        _MPI, _DISTRIBUTED, classes=("IPUMultiReplicaExtended", "IPUMultiReplicaStrategy")
    ),
    "ipu_multi_worker_strategy": _VARIABLES,
    "keras_extensions": Refused(
        "it was the inside of the strategy", "Make Keras models in strategy.scope().", classes=("KerasExtensions",)
    ),
    "ops.experimental.popfloat_cast_to_gfloat": Refused(
        "generic small float formats are not implemented",
        "Use f8_ops for float8, or tf.quantization.fake_quant_with_min_max_vars.",
        functions=("calc_gfloat_params", "cast_gfloat_to_native", "cast_native_to_gfloat"),
        classes=("GenericFloat",),
    ),
    "ops.f8_ops": Refused(
        "it was the inside of f8_matmul",
        "Use tf.reshape.",
        functions=("canonicalise_input", "canonicalise_output"),
    ),
    "ops.op_util": Refused(
        "it was the inside of other operations",
        "Use the optimizers of ipu.optimizers, or set_gradient_accumulation_options of a Keras model.",
        functions=(
            "HandleMatMulGrads",
            "SetMlType",
            "SetOpAsBwd",
            "SetOpAsFwd",
            "SetOpAsWU",
            "accumulate_gradients",
            "accumulate_tagged_gradients",
            "bool_to_three_state",
            "conv_gradients_override_map",
            "create_resource_update",
            "get_accumulator_dtype",
            "get_activation_name",
            "gradient_override_scope",
            "gradients_override_map",
            "matmul_gradients_override_map",
        ),
    ),
    "sharding_utils": Refused(
        "it was the inside of automatic sharding, which cut graphs to fit into the memory of IPUs",
        "Choose shards with scopes.ipu_shard, or stages with pipelining_ops.pipeline.",
        functions=(
            "assign_shard",
            "calculate_memory",
            "children",
            "convert_inference_ops_to_nx",
            "find_all_subgraphs",
            "group_subgraphs",
            "is_splitting_edge",
            "is_splitting_node",
            "logging_helper",
            "ordered_weakly_connected_components",
            "set_ipu_shard",
            "tensor_memory_use",
        ),
    ),
    "utils": Refused(
        _OFFLINE_RUNNER,
        _STORE,
        functions=(
            "export_dataset_to_file",
            "export_inputs_to_file",
            "export_variables_from_live_model",
            "export_variables_from_live_session",
            "import_data_in_live_model",
            "import_data_in_live_session",
        ),
    ),
    "vertex_edsl": Refused(
        _HARDWARE,
        "Write the expression with TensorFlow operations; codelet_expression_op takes a function of tensors.",
        classes=(
            "BinaryExpr",
            "BinaryFunctionExpr",
            "Conditional",
            "ConstantVertexExpr",
            "DefaultNameSource",
            "Float16",
            "Float32",
            "Int16",
            "Int32",
            "LetVertexExpr",
            "PlaceholderVertexExpr",
            "Sequence",
            "Type",
            "UnaryFunctionExpr",
            "Unknown",
            "VertexExpression",
        ),
    ),
}

_PACKAGE = __name__.rpartition(".")[0]


def declare(module: str) -> dict[str, Any]:
    """The refused names of a module, to be put among its globals."""
    path = module.removeprefix(f"{_PACKAGE}.")
    entry = TABLE[path]
    functions = {name: refused_function(f"ipu.{path}.{name}", entry) for name in entry.functions}
    return functions | {name: refused_class(module, f"ipu.{path}.{name}", entry) for name in entry.classes}
