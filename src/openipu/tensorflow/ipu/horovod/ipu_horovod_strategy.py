"""The strategy of TensorFlow 1 over MPI: every name is refused when used, as `refused.TABLE` says."""

from openipu.tensorflow.ipu import refused

globals().update(refused.declare(__name__))
