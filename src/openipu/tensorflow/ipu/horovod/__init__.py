"""Collectives of TensorFlow 1 over MPI: every name is refused when used, as `refused.TABLE` says."""

from openipu.tensorflow.ipu import refused

globals().update(refused.declare(__name__))

from openipu.tensorflow.ipu.horovod import basics  # noqa: E402  (its names are declared above)

HorovodBasics = vars(basics)["HorovodBasics"]
