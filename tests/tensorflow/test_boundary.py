"""TensorFlow has what openipu uses of it beyond its public API."""

from openipu import frameworks
from openipu.tensorflow import boundary


def test_this_tensorflow_has_all_that_the_boundary_names():
    assert frameworks.missing(boundary.TABLE) == []
