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
    "slicing_ops",
    "statistics_ops",
    "within_replica_ops",
)
_OPTIMIZERS = (
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
    "eager",
    "gradient_accumulation",
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
    "utils",
    "vertex_edsl",
)

# Lazy, because the core of the front end imports `config` from here while it is itself being imported.
__getattr__, __dir__ = lazy(
    __name__,
    {
        **{name: name for name in _MODULES},
        **{name: f"ops.{name}" for name in _OPS},
        **{name: f"optimizers.{name}" for name in _OPTIMIZERS},
        "outlined_function": "ops.functional_ops:outlined_function",
        "popfloat_cast_to_gfloat": "ops.experimental.popfloat_cast_to_gfloat",
    },
)
