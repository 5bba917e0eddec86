"""The addons with Keras 3."""

from tests.tensorflow.addons.cases import *  # noqa: F403
