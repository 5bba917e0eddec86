"""Keras 3 and Keras 2 have what openipu uses of them beyond their public APIs."""

import pytest

from openipu import frameworks
from openipu.tensorflow.keras.versions import keras2, keras3


@pytest.mark.parametrize("version", [keras2, keras3], ids=["keras2", "keras3"])
def test_this_keras_has_all_that_the_boundary_names(version):
    assert frameworks.missing(version.TABLE) == []
