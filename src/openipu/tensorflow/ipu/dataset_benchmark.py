"""Measurement of data pipelines, under the path IPU programs know."""

from openipu.tensorflow.feeds.benchmark import dataset_benchmark, infeed_benchmark

__all__ = ["dataset_benchmark", "infeed_benchmark"]
