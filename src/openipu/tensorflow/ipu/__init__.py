"""The `tensorflow.python.ipu` package: names and translation, no logic."""

from openipu.tensorflow.ipu import config, ipu_strategy, utils

__all__ = ["config", "ipu_strategy", "utils"]
