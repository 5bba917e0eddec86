"""What estimators refuse: specifications that lack something, and graphs that train wrongly."""

from typing import Any

import tensorflow as tf

from openipu.errors import UnsupportedError
from openipu.tensorflow import boundary
from openipu.tensorflow.estimators.specs import EstimatorSpec, IPUEstimatorSpec, ModeKeys

_WRITES = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")


def check_batch_sizes(sizes: dict[str, int | None], params: dict[str, Any], replicas: int) -> None:
    """Refuse sizes that replicas cannot share, and sizes given twice."""
    given = {mode: size for mode, size in sizes.items() if size is not None}
    if given and "batch_size" in params:
        raise ValueError("batch_size must not be in params where a batch size is an argument of the estimator.")
    for mode, size in given.items():
        if size < 1 or size % replicas:
            raise ValueError(
                f"The batch size for {mode} must be a positive multiple of the number of replicas. "
                f"Received: {size} for {replicas} replicas."
            )


def check_spec(spec: Any, mode: str) -> None:
    """Refuse what a model function must not return, or must not leave out."""
    if not isinstance(spec, (EstimatorSpec, IPUEstimatorSpec)):
        raise ValueError(f"model_fn must return an EstimatorSpec or IPUEstimatorSpec. Received: {type(spec).__name__}.")
    for name in ("export_outputs", "training_chief_hooks", "scaffold"):
        if getattr(spec, name, None) is not None:
            raise UnsupportedError(f"EstimatorSpec({name}=...) is not supported. Leave it out.")
    if mode == ModeKeys.PREDICT:
        if spec.predictions is None:
            raise ValueError("EstimatorSpec must contain predictions when mode is PREDICT")
        return
    if spec.loss is None:
        raise ValueError(f"EstimatorSpec must contain loss when mode is {mode.upper()}")
    if mode == ModeKeys.TRAIN and spec.train_op is None:
        raise ValueError("EstimatorSpec must contain train_op when mode is TRAIN")
    if mode == ModeKeys.EVAL:
        both = spec.eval_metric_ops, getattr(spec, "eval_metrics", None)
        if all(both) or not any(both):
            raise ValueError("EstimatorSpec must contain exactly one of eval_metric_ops and eval_metrics in mode EVAL")


def check_host_call(host_call: Any, iterations: int) -> None:
    """Refuse calls of the host in the middle of a loop."""
    if iterations > 1:
        raise ValueError("host_call is not allowed for iterations_per_loop > 1")
    if not isinstance(host_call, tuple) or len(host_call) != 2 or not callable(host_call[0]):
        raise ValueError(f"host_call must be a tuple of a function and a list of tensors. Received: {host_call!r}.")


def check_global_step() -> None:
    """Refuse a model function that counts steps itself: the host does, a whole loop at a time."""
    step = tf.compat.v1.train.get_global_step()
    assert step is not None, "the estimator has made it"
    graph = tf.compat.v1.get_default_graph()
    handle = boundary.captured_by(graph, step.handle)
    if any(op.type in _WRITES and op.inputs[0] is handle for op in graph.get_operations()):
        raise ValueError(
            "Illegal increment of the `global_step` variable in the `model_fn`. The estimator counts the steps: leave "
            "`global_step` out of `optimizer.minimize` and `apply_gradients`."
        )


def check_reduction(replicas: int) -> None:
    """Refuse replicas that train apart."""
    if replicas > 1 and "cross_replica_" not in str(tf.compat.v1.get_default_graph().as_graph_def()):
        raise ValueError(
            "This is not a valid replicated training graph because no sum over replicas was found in it: every replica "
            "would train weights of its own. Wrap the optimizer in ipu.optimizers.CrossReplicaOptimizer."
        )
