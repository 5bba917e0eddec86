"""Names of `tensorflow.python.ipu` that openipu does not implement: they exist, and say so when they are used."""

from typing import Any, NoReturn

import attrs

from openipu.errors import UnsupportedError


@attrs.frozen
class Refused:
    """Names of one module that share a reason.

    Attributes:
      because: what is missing, as the end of "… is not supported: ".
      instead: the way round, a sentence.
      functions: refused when they are called.
      classes: refused when an object is made.
    """

    because: str
    instead: str
    functions: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()


_LOOP = (
    "Write the loop as `for _ in tf.range(n)` in a tf.function given to strategy.run, or train with Keras, where "
    "steps_per_execution makes it a loop on the device."
)
_KERAS = "Train with a Keras model made in strategy.scope(), which is fed and read by model.fit."
_ESTIMATOR = "TensorFlow no longer has estimators. " + _KERAS
_DISTRIBUTED = "Use IPUStrategy with several replicas in one process."
_VARIABLES = (
    "IPUDistributedVariable",
    "IPUMirroredVariable",
    "IPUOnReadPolicy",
    "IPUOnWritePolicy",
    "IPUSyncOnReadVariable",
)
_HARDWARE = "it makes or runs code for IPU hardware, which openipu does not have"

TABLE: dict[str, Refused] = {
    "dataset_benchmark": Refused(
        "openipu has no feeds that could be measured alone",
        "Measure a pipeline with `for element in dataset.take(n): pass`.",
        functions=("dataset_benchmark", "infeed_benchmark"),
    ),
    "dataset_extractor": Refused(
        "it writes and reads files of the offline Poplar runner, which runs on IPU hardware only",
        "Store data with tf.data.Dataset.save and variables with tf.train.Checkpoint.",
        functions=("dataset_extractor", "export_variables", "get_variable_handles", "import_variables"),
    ),
    "distributed.popdist_strategy": Refused(
        "a program cannot be spread over processes yet",
        _DISTRIBUTED,
        classes=("PopDistExtendedV1", "PopDistStrategy", *_VARIABLES),
    ),
    "ipu_compiler": Refused("graphs of TensorFlow 1 cannot be compiled yet", _LOOP, functions=("compile",)),
    "ipu_estimator": Refused(
        "estimators are not implemented", _ESTIMATOR, classes=("IPUEstimator", "IPUEstimatorSpec")
    ),
    "ipu_infeed_queue": Refused(
        "feeds made by hand are not implemented",
        _KERAS,
        classes=("IPUInfeedQueue", "IPUIterator", "IPUOwnedIterator"),
    ),
    "ipu_multi_worker_strategy": Refused(
        "a program cannot be spread over workers",
        _DISTRIBUTED,
        classes=("IPUMultiWorkerExtendedV1", "IPUMultiWorkerStrategyV1", *_VARIABLES),
    ),
    "ipu_outfeed_queue": Refused(
        "feeds made by hand are not implemented",
        "Return what you want to see from the function given to strategy.run. " + _KERAS,
        classes=("IPUOutfeedQueue", "IPUOutfeedQueueIterator", "ScopedIPUOutfeedQueue"),
    ),
    "ipu_pipeline_estimator": Refused(
        "estimators are not implemented", _ESTIMATOR, classes=("IPUPipelineEstimator", "IPUPipelineEstimatorSpec")
    ),
    "ipu_run_config": Refused("estimators are not implemented", _ESTIMATOR, classes=("IPURunConfig", "RunConfig")),
    "ipu_session_run_hooks": Refused(
        "estimators are not implemented",
        "Use a Keras callback, or internal_ops.print_tensor.",
        classes=("IPULoggingTensorHook",),
    ),
    "keras_extensions": Refused(
        "it was the inside of the strategy", "Make Keras models in strategy.scope().", classes=("KerasExtensions",)
    ),
    "loops": Refused("loops made by hand are not implemented", _LOOP, functions=("repeat", "while_loop")),
    "ops.application_compile_op": Refused(
        "programs compiled ahead of time are not implemented",
        "Run the function with strategy.run.",
        functions=("experimental_application_compile_op",),
    ),
    "ops.custom_ops": Refused(
        _HARDWARE,
        "Write the operation with TensorFlow operations, and its gradient with tf.custom_gradient.",
        functions=("cpu_user_operation", "precompiled_user_op"),
    ),
    "ops.embedded_runtime": Refused(
        "programs compiled ahead of time are not implemented",
        "Call the function with strategy.run, or the model with model.predict.",
        functions=(
            "embedded_runtime_call",
            "embedded_runtime_start",
            "embedded_runtime_start_and_call",
            "embedded_runtime_stop",
        ),
        classes=("RuntimeContext",),
    ),
    "ops.embedding_ops": Refused(
        "tables in the memory of the host are not implemented",
        "Keep the table in a tf.Variable and use embedding_lookup: virtual IPUs have the memory of the host.",
        functions=("create_host_embedding",),
        classes=("HostEmbedding", "HostEmbeddingOptimizerSpec", "HostEmbeddingSGDGAOptimizerSpec"),
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
    "ops.internal_ops": Refused(
        "the state of loops is not visible to the operations in them",
        "Keep a tf.Variable, or a loop variable of a tf.while_loop, and count with it.",
        functions=("fifo", "get_current_iteration_counter"),
    ),
    "ops.nn_ops": Refused(
        "beam search is not implemented",
        "Return the logits and decode them on the host with tf.nn.ctc_beam_search_decoder.",
        functions=("ctc_beam_search_decoder", "ctc_beam_search_decoder_with_log_probs"),
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
    "ops.pipelining_ops": Refused(
        "pipelines made by hand are not implemented",
        "Pipeline a Keras model: assign its layers with keras.ipu.PipelineStage and call set_pipelining_options.",
        functions=("pipeline",),
    ),
    "serving": Refused(
        "programs compiled ahead of time are not implemented",
        "Save the model with model.export(directory) and serve that.",
        functions=("export_keras", "export_pipeline", "export_single_step"),
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
    functions = {name: unsupported(f"ipu.{path}.{name}", entry) for name in entry.functions}
    return functions | {name: refused_class(module, f"ipu.{path}.{name}", entry) for name in entry.classes}


def unsupported(name: str, entry: Refused) -> Any:
    """A function that refuses every call."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise UnsupportedError(f"{name} is not supported: {entry.because}. {entry.instead}")

    refuse.__name__ = refuse.__qualname__ = name.rpartition(".")[2]
    refuse.__doc__ = f"Not supported: {entry.because}."
    return refuse


def refused_class(module: str, name: str, entry: Refused) -> type:
    """A class that can be named in annotations and `isinstance`, but has no objects."""
    refuse = unsupported(name, entry)
    return type(name.rpartition(".")[2], (), {"__new__": refuse, "__doc__": refuse.__doc__, "__module__": module})
