"""The `tensorflow.python.ipu` package: names and translation, no logic."""

from openipu.tensorflow.ipu.lazy import lazy

_OPS = (
    "all_to_all_op",
    "application_compile_op",
    "control_flow_ops",
    "cross_replica_ops",
    "custom_ops",
    "embedded_runtime",
    "embedding_ops",
    "f8_ops",
    "functional_ops",
    "grad_util_ops",
    "image_ops",
    "internal_ops",
    "math_ops",
    "nn_ops",
    "normalization_ops",
    "pipelining_ops",
    "rand_ops",
    "reduce_scatter_op",
    "replication_ops",
    "rnn_ops",
    "slicing_ops",
    "statistics_ops",
    "summary_ops",
    "within_replica_ops",
)
_OPTIMIZERS = (
    "automatic_loss_scaling_optimizer",
    "cross_replica_optimizer",
    "gradient_accumulation_optimizer",
    "ipu_optimizer",
    "map_gradient_optimizer",
    "sharded_optimizer",
)
_MODULES = (
    "config",
    "data",
    "dataset_benchmark",
    "distributed",
    "eager",
    "gradient_accumulation",
    "horovod",
    "ipu_compiler",
    "ipu_estimator",
    "ipu_infeed_queue",
    "ipu_multi_worker_strategy",
    "ipu_outfeed_queue",
    "ipu_pipeline_estimator",
    "ipu_run_config",
    "ipu_session_run_hooks",
    "ipu_strategy",
    "keras",
    "loops",
    "ops",
    "optimizers",
    "scopes",
    "serving",
    "sharding",
    "sharding_utils",
    "utils",
    "vertex_edsl",
)

# Lazy: a program waits only for the modules that it uses.
__getattr__, __dir__ = lazy(
    __name__,
    {
        **{name: name for name in _MODULES},
        **{name: f"ops.{name}" for name in _OPS},
        **{name: f"optimizers.{name}" for name in _OPTIMIZERS},
        "layers": "keras.layers",
        "outlined_function": "ops.functional_ops:outlined_function",
        "popfloat_cast_to_gfloat": "ops.experimental.popfloat_cast_to_gfloat",
    },
)
