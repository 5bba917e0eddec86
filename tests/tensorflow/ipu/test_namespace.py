"""Every public name of `tensorflow.python.ipu` exists, under all its spellings, and refuses clearly if it must."""

import importlib
import inspect
import pathlib
import subprocess
import sys

import pytest

from openipu.errors import UnsupportedError

ROOT = "tensorflow.python.ipu"
NAMES = pathlib.Path(__file__).with_name("public_names.txt").read_text().split()
# They came with TensorFlow's estimators, which are gone.
GONE = {"ipu_compiler.estilib", "ipu_compiler.ipu_estimator"}
# Modules that were visible in others because these imported them.
INSIDES = {"utils.dataset_extractor", "utils.ipu_infeed_queue"}


def resolve(name):
    """The object of a dotted name: modules as far as they go, attributes after that."""
    parts = name.split(".")
    for length in range(len(parts), -1, -1):
        try:
            found = importlib.import_module(".".join([ROOT, *parts[:length]]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise AssertionError(name)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in GONE | INSIDES])
def test_every_public_name_resolves(name):
    assert resolve(name) is not None


def test_op_modules_are_the_same_under_both_paths():
    from tensorflow.python import ipu
    from tensorflow.python.ipu import pipelining_ops as short
    from tensorflow.python.ipu.ops import pipelining_ops as long

    assert short is long is ipu.pipelining_ops is ipu.ops.pipelining_ops
    assert ipu.cross_replica_ops is ipu.ops.cross_replica_ops
    assert ipu.outlined_function is ipu.ops.functional_ops.outlined_function
    assert ipu.cross_replica_optimizer is ipu.optimizers.cross_replica_optimizer


def test_aliases_are_the_same_objects():
    from tensorflow.python import ipu

    assert ipu.ipu_strategy.IPUStrategy is ipu.ipu_strategy.IPUStrategyV1
    workers = ipu.ipu_multi_worker_strategy
    assert workers.IPUMultiWorkerStrategy is workers.IPUMultiWorkerStrategyV1
    method = ipu.gradient_accumulation.GradientAccumulationReductionMethod
    assert ipu.optimizers.GradientAccumulationReductionMethod is method


def refused_names():
    from openipu.tensorflow.ipu import refused

    return [f"{path}.{name}" for path, entry in refused.TABLE.items() for name in (*entry.functions, *entry.classes)]


@pytest.mark.parametrize("name", refused_names())
def test_refusals_name_the_feature_and_the_way_round(name):
    with pytest.raises(UnsupportedError, match=f"ipu.{name} is not supported: .*\\. [A-Z]"):
        resolve(name)()


def test_refused_names_are_public_names():
    assert set(refused_names()) <= set(NAMES)


def test_the_inspection_of_the_package_raises_nothing():
    from tensorflow.python import ipu

    members = dict(inspect.getmembers(ipu))
    assert "ipu_estimator" in members and not hasattr(ipu, "no_such_module")


def test_old_keras_models_are_refused_by_name():
    from tensorflow.python import ipu

    for name in ("Model", "Sequential", "PipelineModel", "PipelineSequential"):
        with pytest.raises(RuntimeError, match=rf"{name} has been deleted. Use tf.keras"):
            getattr(ipu.keras, name)()


def test_reduction_methods_are_parsed_from_members_and_names():
    from tensorflow.python.ipu.gradient_accumulation import GradientAccumulationReductionMethod as Method

    assert Method.parse(Method.MEAN) is Method.parse("mean") is Method.MEAN
    assert Method.parse("Running_Mean") is Method.RUNNING_MEAN
    with pytest.raises(ValueError, match="SUM, MEAN, RUNNING_MEAN"):
        Method.parse("max")


def test_the_core_of_the_front_end_can_be_imported_before_the_package():
    subprocess.run([sys.executable, "-c", "import openipu.tensorflow.devices"], check=True, capture_output=True)


def test_old_keras_names_are_those_of_the_keras_package():
    import keras
    from tensorflow.python import ipu

    assert ipu.keras.PipelineStage is keras.ipu.PipelineStage
    assert ipu.keras.optimizers is keras.ipu.optimizers
    with pytest.raises(AttributeError, match=r"has moved to ipu_tensorflow_addons\.keras\.layers"):
        ipu.keras.layers.NoSuchLayer  # noqa: B018
