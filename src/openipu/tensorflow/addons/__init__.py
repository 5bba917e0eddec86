"""Layers and optimizers of `ipu_tensorflow_addons`, made for whichever Keras the program uses."""
