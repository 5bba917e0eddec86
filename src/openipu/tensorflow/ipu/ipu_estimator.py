"""Estimators."""

from openipu.tensorflow.estimators.estimator import IPUEstimator
from openipu.tensorflow.estimators.specs import IPUEstimatorSpec

__all__ = ["IPUEstimator", "IPUEstimatorSpec"]
