"""`tf.estimator`, which TensorFlow no longer has: the names of it that programs for IPUs use; others are refused."""

import sys

from openipu.tensorflow import boundary
from openipu.tensorflow.estimators.specs import EstimatorSpec, ModeKeys
from openipu.tensorflow.refusals import Refused, refused_class, refused_function

__all__ = ["EstimatorSpec", "ModeKeys"]

_REFUSED = Refused(
    "TensorFlow no longer has estimators, and openipu has those for IPUs only",
    "Use ipu.ipu_estimator.IPUEstimator, or a Keras model.",
    functions=("train_and_evaluate",),
    classes=(
        "BaselineClassifier",
        "BaselineRegressor",
        "BoostedTreesClassifier",
        "DNNClassifier",
        "DNNRegressor",
        "Estimator",
        "EvalSpec",
        "LinearClassifier",
        "LinearRegressor",
        "RunConfig",
        "TrainSpec",
        "WarmStartSettings",
    ),
)

globals().update({name: refused_function(f"tf.estimator.{name}", _REFUSED) for name in _REFUSED.functions})
globals().update({name: refused_class(__name__, f"tf.estimator.{name}", _REFUSED) for name in _REFUSED.classes})


# Its import is the offer: it comes with that of `ipu`.
boundary.offer_namespace("estimator", sys.modules[__name__])
