"""Automatic loss scaling with Keras 3."""

from tests.tensorflow.keras.loss_scaling_cases import *  # noqa: F403
