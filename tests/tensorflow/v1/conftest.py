"""Graphs of TensorFlow 1, on virtual IPUs that were configured the old way."""

import pytest


@pytest.fixture
def graph():
    """A graph of TensorFlow 1 and one virtual IPU, configured the old way."""
    import tensorflow.compat.v1 as tf
    from tensorflow.python import ipu

    ipu.config.reset_ipu_configuration()
    opts = ipu.utils.create_ipu_config(profiling=False)
    ipu.utils.configure_ipu_system(ipu.utils.auto_select_ipus(opts, 1))
    with tf.Graph().as_default() as made:
        yield made
    ipu.config.reset_ipu_configuration()


@pytest.fixture
def on_ipu():
    """Compiles a computation for the first device."""
    from tensorflow.python import ipu

    def compile(computation, inputs=None):
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            return ipu.ipu_compiler.compile(computation, inputs)

    return compile
