"""The optimizers of `ipu_tensorflow_addons.keras.optimizers`."""
