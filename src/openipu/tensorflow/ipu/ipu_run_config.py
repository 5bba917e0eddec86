"""The configuration of estimators."""

from openipu.tensorflow.estimators.run_config import IPURunConfig, RunConfig

__all__ = ["IPURunConfig", "RunConfig"]
