"""What a `model_fn` gets told and gives back."""

from typing import Any, NamedTuple


class ModeKeys:
    """What a model function is built for."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


class EstimatorSpec(NamedTuple):
    """What a model function builds.

    Attributes:
      mode: one of `ModeKeys`.
      predictions: a tensor or a dict of them, for prediction.
      loss: a scalar, for training and evaluation.
      train_op: updates the weights.
      eval_metric_ops: by name, pairs of a value and of the operation that updates it, as `tf.metrics` gives them.
      export_outputs, training_chief_hooks, scaffold: accepted where they are None.
      training_hooks, evaluation_hooks, prediction_hooks: added to the hooks of the call.
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: Any = None
    export_outputs: Any = None
    training_chief_hooks: Any = None
    training_hooks: Any = None
    scaffold: Any = None
    evaluation_hooks: Any = None
    prediction_hooks: Any = None


class IPUEstimatorSpec(NamedTuple):
    """What a model function builds, with two ways to work on the host.

    Attributes:
      mode, predictions, loss, train_op, eval_metric_ops: as of `EstimatorSpec`.
      eval_metrics: a function and its arguments: tensors of the model, which it gets on the host, all iterations of a
        loop stacked. It returns what `eval_metric_ops` would be.
      host_call: a function and its arguments: tensors of the model, which it gets on the host after a step.
      training_hooks, evaluation_hooks, prediction_hooks: added to the hooks of the call.
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: Any = None
    eval_metrics: Any = None
    host_call: Any = None
    training_hooks: Any = None
    evaluation_hooks: Any = None
    prediction_hooks: Any = None


def hooks_of(spec: Any, mode: str) -> list[Any]:
    """The hooks that a model function wants."""
    names = {ModeKeys.TRAIN: "training_hooks", ModeKeys.EVAL: "evaluation_hooks", ModeKeys.PREDICT: "prediction_hooks"}
    return list(getattr(spec, names[mode]) or ())
