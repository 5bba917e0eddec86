"""popdist.tensorflow on openipu: names only."""

from openipu.tensorflow.configuration.popdist import set_ipu_config

__all__ = ["set_ipu_config"]
