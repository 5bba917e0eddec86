"""The layers of `ipu_tensorflow_addons.keras.layers`, one family a module."""
