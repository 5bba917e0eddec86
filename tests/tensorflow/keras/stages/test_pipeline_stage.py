"""`PipelineStage` marks calls and layers, and nothing else notices."""

import keras
import pytest
from keras.src.ops.node import Node
from keras.src.ops.operation import Operation

from openipu.tensorflow.keras.stages import PipelineStage, is_pipelined, stage_count
from openipu.tensorflow.keras.stages.create import stages_of

layers = keras.layers


def stages(model):
    return stages_of(model.get_pipeline_stage_assignment())


def test_layers_called_in_a_stage_belong_to_it(scope):
    x = keras.Input((4,))
    with PipelineStage(0):
        y = layers.Dense(3)(x)
    with PipelineStage(1):
        y = layers.Dense(2)(y)
        y = y * 2.0
    model = keras.Model(x, y)
    assert stages(model) == [0, 1, 1]
    assert is_pipelined(model) and stage_count(model) == 2


def test_the_call_counts_before_the_construction(scope):
    x = keras.Input((4,))
    with PipelineStage(0):
        first, second = layers.Dense(4), layers.Dense(4)
        y = first(x)
    with PipelineStage(1):
        z = first(y)
    model = keras.Model(x, [second(y), z])
    assert {(a.layer.name, a.node_index): a.pipeline_stage for a in model.get_pipeline_stage_assignment()} == {
        (first.name, 0): 0,
        (first.name, 1): 1,
        (second.name, 0): 0,
    }


def test_a_layer_without_a_stage_is_refused_when_the_model_is_made(scope):
    x = keras.Input((4,))
    with PipelineStage(0):
        y = layers.Dense(3)(x)
    y = layers.Dense(2, name="forgotten")(y)
    with pytest.raises(ValueError, match=r"All layers of a pipelined model.*However, forgotten has not been assigned"):
        keras.Model(x, y)


def test_a_model_without_stages_is_not_pipelined(scope):
    x = keras.Input((4,))
    model = keras.Model(x, layers.Dense(3)(x))
    assert not is_pipelined(model)
    assert stages(model) == [None]


def test_sequential_models_ignore_stages(scope):
    with PipelineStage(0):
        first = layers.Dense(3)
    model = keras.Sequential([keras.Input((4,)), first, layers.Dense(2)])
    assert not is_pipelined(model)


def test_negative_stages_are_refused_with_the_text_of_the_original():
    with pytest.raises(ValueError, match=r"^%d is not a valid pipeline stage.$"):
        PipelineStage(-1)


def test_stages_need_a_strategy():
    with pytest.raises(RuntimeError, match=r"may only be used from within an IPUStrategy context"), PipelineStage(0):
        pass


def test_stages_must_not_be_nested_and_end_cleanly(scope):
    before = Operation.__init__, Node.__init__
    with pytest.raises(RuntimeError, match=r"Pipeline stages must not be nested."), PipelineStage(0), PipelineStage(1):
        pass
    assert (Operation.__init__, Node.__init__) == before
    with PipelineStage(1):
        assert Operation.__init__ is not before[0]
    assert (Operation.__init__, Node.__init__) == before


def test_layers_made_in_a_stage_can_be_saved(scope):
    with PipelineStage(0):
        layer = layers.Dense(3, name="saved")
        custom = Doubled(units=3)
    assert layers.Dense.from_config(layer.get_config()).units == 3
    assert custom.get_config()["units"] == 3


class Doubled(layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units


def test_a_nested_model_called_in_a_stage_is_in_it_throughout(scope):
    block = keras.Sequential([keras.Input((4,)), layers.Dense(4), layers.ReLU()])
    x = keras.Input((4,))
    with PipelineStage(0):
        y = block(x)
    with PipelineStage(1):
        y = block(y)
    model = keras.Model(x, y)
    assert stages(model) == [0, 0, 1, 1]
    first, second = model.get_pipeline_stage_assignment()
    assert (first.node_index, second.node_index) == (0, 1) and first.is_nested_model


def test_a_nested_model_keeps_its_own_stages_when_called_outside_of_them(scope):
    i = keras.Input((4,))
    with PipelineStage(0):
        h = layers.Dense(4)(i)
    with PipelineStage(1):
        h = layers.Dense(4)(h)
    block = keras.Model(i, h)
    x = keras.Input((4,))
    y = block(x)
    with PipelineStage(1):
        y = layers.Dense(1)(y)
    assert stages(keras.Model(x, y)) == [0, 1, 1]


class Staged(keras.Model):
    def __init__(self):
        super().__init__()
        self.one = layers.Dense(4)
        with PipelineStage(1):
            self.two = layers.Dense(3)

    def call(self, x):
        with PipelineStage(0):
            x = keras.ops.relu(self.one(x))
        return self.two(x)


def test_a_subclassed_model_reads_its_stages_when_it_is_built(scope):
    model = Staged()
    assert not is_pipelined(model)
    model.build((None, 5))
    assert is_pipelined(model)
    assert stages(model) == [0, 0, 1]
    assert stage_count(model) == 2


def test_a_subclassed_model_reads_its_stages_when_it_was_called(scope):
    model = Staged()
    model(keras.ops.ones((2, 5)))
    assert is_pipelined(model) and stages(model) == [0, 0, 1]


def test_a_subclassed_model_without_a_stage_for_a_layer_is_refused(scope):
    class Forgetful(keras.Model):
        def __init__(self):
            super().__init__()
            self.one, self.two = layers.Dense(4), layers.Dense(3, name="forgotten")

        def call(self, x):
            with PipelineStage(0):
                x = self.one(x)
            return self.two(x)

    with pytest.raises(ValueError, match=r"However, forgotten has not been assigned"):
        Forgetful().build((None, 4))
