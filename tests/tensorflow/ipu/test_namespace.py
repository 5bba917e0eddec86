"""Every public name of `tensorflow.python.ipu` exists, under all its spellings, and refuses clearly if it must."""

import inspect
import pickle
import subprocess
import sys

import pytest
import tensorflow as tf

from openipu.compatibility import note_of
from openipu.compatibility.page import find
from openipu.errors import UnsupportedError
from openipu.tensorflow.ops.gradient_reduction import GradientAccumulationReductionMethod
from tests import names

ROOT = "tensorflow.python.ipu"
TF2, TF1, KERAS = names.read("tensorflow2"), names.read("tensorflow1"), names.read("keras_ipu")
# Modules that were visible in others because these imported them.
INSIDES = {
    f"{ROOT}.ipu_compiler.estilib",
    f"{ROOT}.ipu_compiler.ipu_estimator",
    "keras.ipu.extensions.pipeline_stage_assignment.ipu_strategy",
}


# They were made when `utils` was imported, where no inventory sees them.
MADE_LATER = {
    f"{ROOT}.utils.{verb}_live_{where}"
    for verb in ("export_variables_from", "import_data_in")
    for where in ("session", "model")
}


class _Abbreviations:
    """What the inventory's expressions of defaults call things."""

    GradientAccumulationReductionMethod = GradientAccumulationReductionMethod
    half = tf.float16
    NONE = tf.UnconnectedGradients.NONE


NAMESPACE = {"ga": _Abbreviations, "dtypes": _Abbreviations, "UnconnectedGradients": _Abbreviations}


@pytest.mark.parametrize("name", sorted({**TF2, **KERAS, **TF1}.keys() - INSIDES))
def test_every_public_name_exists(name):
    assert find(name) is not None


@pytest.mark.parametrize("name", [name for name in {**TF2, **KERAS} if name not in INSIDES])
def test_a_name_can_be_used_as_in_tensorflow_2(name):
    found, expected = find(name), {**TF2, **KERAS}[name]
    if note_of(found) is not None:
        return  # Refused, whatever the arguments.
    own = vars(found) if isinstance(found, type) else {}
    names.check(found, expected, {**NAMESPACE, **vars(sys.modules.get(getattr(found, "__module__", ""), sys)), **own})


@pytest.mark.parametrize("name", [name for name in TF1 if TF1[name]["kind"] in ("class", "function")])
def test_the_arguments_of_tensorflow_1_can_be_given_by_name(name):
    if "parameters" in TF1[name]:
        names.check_keywords(find(name), TF1[name]["parameters"])


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
    with pytest.raises(UnsupportedError, match=f"ipu.{name} is not supported: .*\\. [A-Z]") as refused:
        find(f"{ROOT}.{name}")()
    assert isinstance(refused.value, tf.errors.UnimplementedError)
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


def test_refused_names_are_public_names():
    assert {f"{ROOT}.{name}" for name in refused_names()} <= TF2.keys() | TF1.keys() | MADE_LATER


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
    subprocess.run(
        [sys.executable, "-c", "import openipu.tensorflow.configuration.devices"], check=True, capture_output=True
    )


def test_old_keras_names_are_those_of_the_keras_package():
    import keras
    from tensorflow.python import ipu

    assert ipu.keras.PipelineStage is keras.ipu.PipelineStage
    assert ipu.keras.optimizers is keras.ipu.optimizers
    with pytest.raises(AttributeError, match=r"has moved to ipu_tensorflow_addons\.keras\.layers"):
        ipu.keras.layers.NoSuchLayer  # noqa: B018
