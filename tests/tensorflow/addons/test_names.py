"""Every public name of the addons exists and can be used as in the original."""

import sys

import pytest
import tensorflow as tf

from openipu.compatibility.page import find
from openipu.tensorflow.ipu.ops.f8_ops import Format
from tests import names

ADDONS = names.read("addons")
NAMESPACE = {"tf": tf, "Format": Format}


@pytest.mark.parametrize("name", sorted(ADDONS))
def test_a_name_can_be_used_as_in_the_original(name):
    found = find(name)
    module = sys.modules.get(getattr(found, "__module__", ""), sys)
    names.check(found, ADDONS[name], {**NAMESPACE, **vars(module)})


def test_aliases_are_the_same_objects():
    for name, expected in ADDONS.items():
        if expected["kind"] == "alias" and "._" not in expected["of"]:
            # Within a module the inventory leaves its name out.
            other = expected["of"] if "." in expected["of"] else f"{name.rpartition('.')[0]}.{expected['of']}"
            assert find(name) is find(other), name


def test_modules_are_found_without_being_imported():
    import ipu_tensorflow_addons

    assert ipu_tensorflow_addons.keras.layers.LSTM is find("ipu_tensorflow_addons.keras.layers.rnn.PopnnLSTM")
    assert ipu_tensorflow_addons.check_dependencies() is None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ipu_tensorflow_addons.nothing  # noqa: B018
