"""Saving and loading keeps the stages inside a scope and forgets them outside."""

import keras
import numpy as np
import pytest

from openipu.tensorflow.keras import stages
from openipu.tensorflow.keras.stages import PipelineStage
from openipu.tensorflow.keras.stages.create import stages_of
from tests.tensorflow.keras.stages.one_by_one import stage_functions

layers = keras.layers


def functional():
    x = keras.Input((4,))
    shared = layers.Dense(4)
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(4), layers.ReLU(), layers.Dense(4)])
    shared(keras.Input((4,)))  # A call that is not part of the model.
    with PipelineStage(0):
        y = shared(x)
    with PipelineStage(1):
        y = inner(shared(y)) + y
    with PipelineStage(2):
        y = layers.Dense(1)(y)
    return keras.Model(x, y), [0, 1, 1, 1, 1, 1, 2]


def sequential():
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(4), layers.ReLU(), layers.Dense(4)])
    model = keras.Sequential([keras.Input((4,)), inner, layers.Dense(2)])
    model.set_pipeline_stage_assignment([0, 1])
    return model, [0, 0, 0, 1]


class Subclass(keras.Model):
    def __init__(self, units=3, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.a, self.b = layers.Dense(4), layers.Dense(units)

    def call(self, x):
        return self.b(self.a(x))

    def get_config(self):
        return {**super().get_config(), "units": self.units}


def subclass():
    model = Subclass()
    model.build((None, 4))
    assignment = model.get_pipeline_stage_assignment()
    for stage, item in enumerate(assignment):
        item.pipeline_stage = stage
    model.set_pipeline_stage_assignment(assignment)
    return model, [0, 1]


@pytest.mark.parametrize("make", [functional, sequential, subclass])
def test_stages_are_saved_and_loaded(strategy, tmp_path, make):
    path = tmp_path / "model.keras"
    x = np.ones((2, 4), "float32")
    with strategy.scope():
        model, expected = make()
        assert stages_of(model.get_pipeline_stage_assignment()) == expected
        model.save(path)
        loaded = keras.models.load_model(path, custom_objects={"Subclass": Subclass})
        assert stages.is_pipelined(loaded)
        assert stages_of(loaded.get_pipeline_stage_assignment()) == expected
        np.testing.assert_array_equal(model(x), loaded(x))
        np.testing.assert_allclose(stage_functions(loaded)(x), model(x), rtol=1e-6)
    outside = keras.models.load_model(path, custom_objects={"Subclass": Subclass})
    assert not hasattr(outside, "get_pipeline_stage_assignment")
    np.testing.assert_array_equal(model(x), outside(x))


def test_the_config_has_the_entries_of_the_reference(scope):
    model, _ = functional()
    config = stages.config_of(model)["pipeline_stage_assignment"]
    names = [operation.name for operation in model.operations]
    assert [names[entry[0]] for entry in config] == [
        a.nested_model.name if a.is_nested_model else a.layer.name for a in model.get_pipeline_stage_assignment()
    ]
    assert [entry[2] for entry in config] == [0, 1, [1, 1, 1], 1, 2]
    row, _ = sequential()
    assert stages.config_of(row) == {
        "pipeline_stage_assignment": [[0, 0, 0], 1],
        "pipeline_stage_assignment_valid": True,
    }


def test_a_config_of_another_model_is_refused(scope):
    model, _ = functional()
    with pytest.raises(ValueError, match="pipeline stages for 1 layers, but the model has 7"):
        stages.restore(model, {"pipeline_stage_assignment": [[0, 0, 0]]})


def test_json_keeps_stages(strategy):
    with strategy.scope():
        model, expected = functional()
        loaded = keras.models.model_from_json(model.to_json())
        assert stages_of(loaded.get_pipeline_stage_assignment()) == expected
