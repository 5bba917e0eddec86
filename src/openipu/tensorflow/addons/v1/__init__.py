"""Layers in the style of TensorFlow 1."""
