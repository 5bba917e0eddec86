"""Estimators of pipelined models."""

from openipu.tensorflow.estimators.pipeline_estimator import IPUPipelineEstimator, IPUPipelineEstimatorSpec

__all__ = ["IPUPipelineEstimator", "IPUPipelineEstimatorSpec"]
