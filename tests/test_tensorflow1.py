"""A program of TensorFlow 1 is recognised, and gets TensorFlow 1; everybody else gets what they had."""

import subprocess
import sys

import pytest

from openipu.tensorflow1 import describe, sign_of_tensorflow1

OLD = """
import numpy as np
import tensorflow as tf
from tensorflow.python import ipu
import layers_of_mine

x = tf.placeholder(tf.float32, [4, 3])
ipu.utils.configure_ipu_system(ipu.utils.auto_select_ipus(ipu.utils.create_ipu_config(), 1))

def train(x):
    loss = tf.reduce_mean(tf.square(layers_of_mine.net(x)))
    step = tf.train.get_or_create_global_step()
    return loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)

step = tf.train.get_or_create_global_step()
with ipu.scopes.ipu_scope("/device:IPU:0"):
    loss, = ipu.ipu_compiler.compile(train, [x])
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    losses = [session.run(loss, {x: np.ones((4, 3))}) for _ in range(3)]
    print(losses[2] < losses[0], session.run(step), tf.__name__, tf.keras.__name__)
try:
    tf.contrib.layers
except Exception as error:
    print(error)
"""
PART = """
import tensorflow

def net(x):
    return tensorflow.layers.dense(x, 2, kernel_initializer=tensorflow.ones_initializer())
"""


@pytest.fixture
def written(tmp_path):
    def write(text, name="train.py"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import tensorflow as tf\nprint(1)\ns = tf.Session()", "tf.Session"),
        ("import tensorflow\ntensorflow.train.AdamOptimizer(1)", "tensorflow.train.AdamOptimizer"),
        ("import tensorflow.compat.v1 as tf\ntf.placeholder(1)", "tf.placeholder"),
        ("from tensorflow.compat import v1 as tf\ntf.get_variable('a')", "tf.get_variable"),
        ("import tensorflow as tf\nx = tf.contrib.layers.flatten(1)", "tf.contrib.layers.flatten"),
        ("import tensorflow as tf\nx = tf.keras.layers.Dense(1)\ntf.train.Checkpoint()", None),
        ("import tensorflow as tf\ntf.compat.v1.disable_v2_behavior()\ntf.Session()", None),
        ("import tensorflow.compat.v1 as tf\ntf.disable_eager_execution()\ntf.Session()", None),
        ("import torch as tf\ntf.Session()", None),
        ("this is not Python", None),
    ],
)
def test_what_gives_a_program_away(written, text, name):
    sign = sign_of_tensorflow1(written(text))
    assert (None if sign is None else sign.name) == name


def test_modules_beside_the_program_are_part_of_it(written):
    written("import tensorflow as tf\nx = tf.layers.dense", "model.py")
    sign = sign_of_tensorflow1(written("from model import x\nimport missing"))
    assert describe(sign).startswith("openipu: tf.layers.dense (model.py, line 2) is of TensorFlow 1")
    written("import tensorflow as tf\ntf.compat.v1.disable_v2_behavior()", "setup.py")
    assert sign_of_tensorflow1(written("import setup, model")) is None


def test_a_program_of_tensorflow_1_runs_unchanged(written):
    pytest.importorskip("tf_keras")
    written(PART, "layers_of_mine.py")
    command = [sys.executable, "-m", "openipu", "run", "--no-progress", str(written(OLD))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, contrib = done.stdout.strip().splitlines()
    assert first == "True 3 tensorflow.compat.v1 tf_keras.api._v1.keras"
    assert contrib.startswith("tf.contrib.layers is not supported")
    notes = [line for line in done.stderr.splitlines() if line.startswith("openipu:")]
    assert len(notes) == 1 and "tf.placeholder (train.py, line 7)" in notes[0]
