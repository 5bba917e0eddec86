"""The addons with Keras 3."""

from tests.tensorflow.addons.cases import *  # noqa: F403
from tests.tensorflow.addons.pipeline_cases import *  # noqa: F403
