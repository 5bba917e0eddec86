"""Exported models are served by stock TensorFlow in a process that knows nothing of openipu."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from openipu.errors import UnsupportedError
from tests.tensorflow.serving import models

W = np.arange(6, dtype=np.float32).reshape(2, 3)
SPEC = [tf.TensorSpec((1, 2), tf.float32)]

SERVE = """
import sys
import numpy as np
import tensorflow as tf

folder, name = sys.argv[1:]
predict = tf.saved_model.load(folder + "/saved").signatures[name]
given = np.load(folder + "/expected.npz")
names = list(predict.structured_input_signature[1])
results = predict(**{names[0]: tf.constant(given["x"])})
for key in set(given.files) - {"x"}:
    np.testing.assert_allclose(results[key], given[key], rtol=1e-5, atol=1e-6)
assert not [module for module in sys.modules if module.startswith("openipu.tensorflow")]
print(names[0])
"""


def serve(folder, name="serving_default"):
    """The name of the input of a model that stock TensorFlow loaded, called and compared."""
    command = [sys.executable, "-c", SERVE, str(folder), name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def weights(strategy):
    with strategy.scope():
        return tf.Variable(W)


def test_a_step_with_functions_around_it_is_served(weights, tmp_path):
    def clean(text):
        return tf.reshape(tf.strings.to_number(tf.strings.split(text).to_tensor()), (1, 2))

    predict = ipu.serving.export_single_step(
        lambda x: x @ weights, str(tmp_path / "saved"), 16, SPEC, None, "best", clean,
        [tf.TensorSpec((1,), tf.string)], lambda y: tf.argmax(y, -1), [tf.TensorSpec((1, 3))],
    )  # fmt: skip
    assert predict(tf.constant(["1 2"]))["best"].numpy().tolist() == [2]
    np.savez(tmp_path / "expected.npz", x=np.array(["1 2"], dtype="S3"), best=np.array([2]))
    assert serve(tmp_path, "predict") == "text"


def test_stages_of_a_pipeline_are_served(weights, tmp_path):
    stages = [lambda scale, x: x * scale, lambda x: x @ weights]
    dataset = tf.data.Dataset.from_tensors(np.ones((1, 2), np.float32))
    arguments = {"inputs": [tf.constant(3.0)], "input_dataset": dataset}
    ipu.serving.export_pipeline(stages, str(tmp_path / "saved"), 4, **arguments)
    x = np.array([[1, 2]], np.float32)
    np.savez(tmp_path / "expected.npz", x=x, output_0=3 * x @ W)
    serve(tmp_path)
    with pytest.raises(tf.errors.FailedPreconditionError, match="multiple of 2, but it is 3"):
        ipu.serving.export_pipeline(stages, str(tmp_path / "other"), 3, **arguments)


def test_a_keras_model_is_served(strategy, tmp_path):
    ipu.config.reset_ipu_configuration()
    models.export(tmp_path)
    assert serve(tmp_path) == "features"


def test_a_model_of_keras_2_is_served(tmp_path):
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "1"}
    command = [sys.executable, models.__file__, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert serve(tmp_path) == "features"


def test_what_an_export_refuses(strategy, weights, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")

    def export(step=lambda x: x @ weights, folder="new", iterations=2, signature=SPEC, **kwargs):
        return ipu.serving.export_single_step(step, str(tmp_path / folder), iterations, signature, **kwargs)

    with pytest.raises(ValueError, match=r'full" is not empty\. Please specify an empty directory'):
        export(folder="full")
    export(folder="full", purge_export_dir=True)
    assert not (tmp_path / "full" / "file").exists()
    with pytest.raises(ValueError, match="Both `predict_step_signature` and `input_dataset` cannot be provided"):
        export(input_dataset=tf.data.Dataset.range(3))
    with pytest.raises(ValueError, match="Provide `predict_step_signature`"):
        export(signature=None)
    with pytest.raises(TypeError, match="must be an instance of tuple or list"):
        export(signature=SPEC[0])
    with pytest.raises(ValueError, match="must be not empty"):
        export(signature=[])
    with pytest.raises(TypeError, match=r"`predict_step_signature\[0\]` is not an instance of TensorSpec"):
        export(signature=[3])
    with pytest.raises(ValueError, match="Length of input_signature does not match the number of predict_step"):
        export(signature=SPEC * 2)
    with pytest.raises(ValueError, match="one name for each of the 1 outputs"):
        export(output_names=["a", "b"], folder="names")
    with pytest.raises(ValueError, match="returned Tensor at postion 0 does not match required predict_step"):
        export(preprocessing_step=lambda x: x, preprocessing_step_signature=[tf.TensorSpec((5, 5))], folder="before")
    with pytest.raises(UnsupportedError, match="operations that only the IPU has"):
        export(step=lambda x: ipu.cross_replica_ops.cross_replica_sum(x), folder="device")
    with pytest.raises(ValueError, match="was not created inside an IPU strategy"):
        ipu.serving.export_keras(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]), str(tmp_path / "keras"))
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        with pytest.raises(ValueError, match="Not all dimensions of inputs can be determined"):
            model.export_for_ipu_serving(str(tmp_path / "keras"))
