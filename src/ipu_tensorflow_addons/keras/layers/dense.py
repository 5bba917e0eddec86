"""The names of `dense`."""

from openipu.tensorflow.addons.layers.dense import Dense, SerialDense

__all__ = ["Dense", "SerialDense"]
