"""The Keras whose classes the addons extend: Keras 2 where the program chose it, Keras 3 otherwise."""

import importlib
import sys
from typing import Any

from openipu import environment

# A program that imports `tf_keras` by its own name need not set the variable.
IS_KERAS_2: bool = environment.legacy_keras() or ("tf_keras" in sys.modules and "keras" not in sys.modules)

keras: Any = importlib.import_module("tf_keras" if IS_KERAS_2 else "keras")


def registered(cls: type) -> type:
    """Make a class known to Keras, so that saved models are loaded without naming it."""
    return keras.saving.register_keras_serializable("ipu_tensorflow_addons")(cls)
