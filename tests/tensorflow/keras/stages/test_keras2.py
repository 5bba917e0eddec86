"""Stages of models of Keras 2."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from openipu.tensorflow.keras.stages import (
    PipelineStage,
    is_pipelined,
    stage_count,
    stage_of_scope,
)
from openipu.tensorflow.keras.stages.create import from_stages, stages_of
from openipu.tensorflow.keras.stages.tracing import graph_of
from tests.tensorflow.keras.stages.one_by_one import stage_functions, stage_variables

layers = tf_keras.layers


def functional():
    x = tf_keras.Input((4,))
    inner = tf_keras.Sequential([layers.Dense(4), layers.ReLU()])
    shared = layers.Dense(4, kernel_regularizer="l2", activity_regularizer="l1")
    with PipelineStage(0):
        y = shared(x)
    with PipelineStage(1):
        z = inner(shared(y)) + y
    with PipelineStage(2):
        z = layers.Dense(1)(tf.nn.relu(z))
    model = tf_keras.Model(x, [z, y])
    return model, [0, 1, 1, 1, 1, 2, 2]


def sequential():
    row = [layers.Embedding(7, 4, mask_zero=True), layers.Dense(4), layers.GlobalAveragePooling1D()]
    row.append(layers.BatchNormalization())
    model = tf_keras.Sequential([tf_keras.Input((5,), dtype="int32"), *row])
    model.set_pipeline_stage_assignment([0, 0, 1, 2])
    return model, [0, 0, 1, 2]


def nested():
    inner = tf_keras.Sequential([layers.Dense(4), layers.ReLU()])
    x = tf_keras.Input((4,))
    model = tf_keras.Model(x, inner(inner(x)))
    model.set_pipeline_stage_assignment(from_stages(graph_of(model), [0, 1, 1, 2]))
    return model, [0, 1, 1, 2]


class Subclass(tf_keras.Model):
    def __init__(self):
        super().__init__()
        self.one, self.two = layers.Dense(4), layers.Dense(3)

    def call(self, x):
        with PipelineStage(0):
            x = tf.nn.relu(self.one(x))
        with PipelineStage(1):
            return {"y": self.two(x)}


def subclass():
    model = Subclass()
    model.build((None, 4))
    return model, [0, 0, 1]


CASES = [functional, sequential, nested, subclass]


@pytest.fixture
def made(scope, request):
    model, expected = request.param()
    rng = np.random.default_rng(0)
    if request.param is sequential:
        return model, expected, rng.integers(0, 4, (2, 5)).astype("int32")
    return model, expected, rng.random((2, 4), "float32")


@pytest.mark.parametrize("made", CASES, indirect=True)
def test_stages_are_assigned(made):
    model, expected, _ = made
    assert is_pipelined(model) and stage_count(model) == expected[-1] + 1
    assert stages_of(model.get_pipeline_stage_assignment()) == expected
    lines = []
    model.print_pipeline_stage_assignment_summary(print_fn=lines.append)
    assert lines[0] == f'Model: "{model.name}"'


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("made", CASES, indirect=True)
def test_all_stages_together_are_the_model(made, training):
    model, _, x = made
    before = model.get_weights()
    expected = model(x, training=training)
    losses, after = [float(v) for v in model.losses], model.get_weights()
    model.set_weights(before)
    staged = stage_functions(model, training)
    values, received = staged.enter(x), []
    for stage in staged.stages:
        values, added = stage.run(values)
        received += [float(v) for v in added]
    tf.nest.map_structure(np.testing.assert_array_equal, expected, staged.leave(values))
    np.testing.assert_allclose(sorted(received), sorted(losses), rtol=1e-6)
    for one, other in zip(after, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("made", CASES, indirect=True)
def test_operations_and_variables_belong_to_their_stage(made):
    model, _, x = made
    own = [{id(v) for v in variables} for variables in stage_variables(model)]
    assert set.union(*own) == {id(v) for v in model.variables}
    graph = (
        tf.function(lambda x: model(x), autograph=False).get_concrete_function(tf.TensorSpec(x.shape, x.dtype)).graph
    )
    stage = stage_of_scope(model)
    products = [stage(o.name) for o in graph.get_operations() if o.type == "MatMul" and model.name in o.name]
    assert products == sorted(products) and None not in products


def test_inputs_of_other_dtypes_can_be_built(scope):
    model = tf_keras.Sequential([layers.Embedding(5, 3), layers.Dense(2)])

    class Tokens(tf_keras.Model):
        def __init__(self):
            super().__init__()
            self.row = model

        def call(self, x):
            return self.row(x)

    tokens = Tokens()
    tokens.build(tf_keras.Input((7,), dtype="int32"))
    assert len(tokens.weights) == 3
    (nested_assignment,) = tokens.get_pipeline_stage_assignment()
    assert nested_assignment.is_nested_model
