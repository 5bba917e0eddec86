"""The recurrent layers of TensorFlow 1, found in ipu_tensorflow_addons."""

from typing import Any

from openipu.tensorflow.ipu.lazy import moved


def __getattr__(name: str) -> Any:
    return moved(__name__, name, "ipu_tensorflow_addons.v1.layers.rnn_ops")
