"""The two Kerases behind one protocol: which are loaded, and which one a model belongs to."""

import functools
import sys
from typing import Any

from openipu import environment, frameworks
from openipu.tensorflow.keras.versions.protocol import KerasVersion

__all__ = ["KerasVersion", "in_use", "loaded", "version_of"]


def loaded() -> list[KerasVersion]:
    """Every Keras that this process has imported."""
    versions = {"keras": _keras3, "tf_keras": _keras2}
    # `keras` may be a second name of Keras 2.
    names = {module.__name__ for module in map(sys.modules.get, versions) if module is not None}
    return [version() for name, version in versions.items() if name in names]


def in_use() -> list[KerasVersion]:
    """Every Keras that this process has imported, and the one that `tf.keras` means."""
    meant = _keras2() if environment.legacy_keras() else _keras3()
    return [meant, *(version for version in loaded() if version is not meant)]


def version_of(model: Any) -> KerasVersion:
    """The Keras that a model or layer belongs to."""
    legacy = sys.modules.get("tf_keras")
    return _keras2() if legacy is not None and isinstance(model, legacy.layers.Layer) else _keras3()


@functools.cache
def _keras3() -> KerasVersion:
    frameworks.require("keras")
    from openipu.tensorflow.keras.versions import keras3

    return keras3


@functools.cache
def _keras2() -> KerasVersion:
    frameworks.require("tf-keras")
    from openipu.tensorflow.keras.versions import keras2

    return keras2
