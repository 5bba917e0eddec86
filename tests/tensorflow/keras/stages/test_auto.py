"""Automatic stages are balanced by what layers cost."""

import keras
import numpy as np
import pytest

from openipu.tensorflow.keras.stages import is_pipelined, split, stage_count
from openipu.tensorflow.keras.stages.tracing import graph_of
from tests.tensorflow.keras.stages.one_by_one import stage_functions

layers = keras.layers


def test_costs_are_those_of_the_layers(scope):
    model = keras.Sequential(
        [keras.Input((8, 8, 3)), layers.Conv2D(6, 3), layers.ReLU(), layers.Flatten(), layers.Dense(10)]
    )
    made = split(graph_of(model), 2, batch_size=4)
    conv, relu, flat, dense = made.costs
    assert conv.flops == 2 * 4 * 6 * 6 * 6 * 3 * 3 * 3
    assert relu.flops == 0 and 0 < relu.seconds < conv.seconds
    assert flat.flops == flat.seconds == 0
    assert dense.flops == 2 * 4 * 216 * 10


def test_recurrent_layers_cost_every_step(scope):
    model = keras.Sequential([keras.Input((5, 3)), layers.LSTM(8), layers.Dense(1)])
    made = split(graph_of(model), 1, batch_size=2)
    assert made.costs[0].flops == pytest.approx(5 * 2 * 2 * (3 + 8) * 32, rel=0.01)


def test_equal_layers_are_shared_out_equally(scope, capsys):
    x = y = keras.Input((512,))
    for i in range(8):
        y = layers.Dense(512, name=f"dense_{i}")(y)
    model = keras.Model(x, y)
    assert model.auto_pipeline_stage_assignment(2, batch_size=4096) == [0, 0, 0, 0, 1, 1, 1, 1]
    assert is_pipelined(model) and stage_count(model) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("stage 0: dense_0 to dense_3 (4 layers), 8,589.9 MFLOP")
    assert lines[-1] == "expected balance (mean over longest stage): 100%"


def test_an_expensive_layer_gets_a_stage_of_its_own(scope):
    model = keras.Sequential([keras.Input((64,)), *(layers.Dense(64) for _ in range(4)), layers.Dense(4096)])
    assert model.auto_pipeline_stage_assignment(2, 256, print_fn=None) == [0, 0, 0, 0, 1]


def test_calls_of_a_shared_layer_stay_together(scope):
    x = keras.Input((16,))
    shared = layers.Dense(16)
    model = keras.Model(x, layers.Dense(16)(shared(layers.Dense(16)(shared(x)))))
    assert model.auto_pipeline_stage_assignment(2, print_fn=None) == [0, 0, 0, 1]
    with pytest.raises(ValueError, match=r"between 1 and the number of layers that can be separated, 2.*stages=3"):
        model.auto_pipeline_stage_assignment(3)


def test_nested_and_subclassed_models_are_split(scope):
    class Subclass(keras.Model):
        def __init__(self):
            super().__init__()
            self.blocks = [keras.Sequential([layers.Dense(32), layers.Dropout(0.1)]) for _ in range(3)]

        def call(self, x):
            for block in self.blocks:
                x = block(x) + x
            return x

    model = Subclass()
    model.build((None, 32))
    assert model.auto_pipeline_stage_assignment(3, print_fn=None) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    x = np.ones((2, 32), "float32")
    np.testing.assert_array_equal(stage_functions(model, False)(x), model(x, training=False))


@pytest.mark.filterwarnings("ignore:.*destroy the mask information")
def test_a_nested_model_that_cannot_be_cut_is_one_layer(scope):
    inside = keras.Input((4, 8))
    block = keras.Model(inside, layers.Dense(8)(layers.Dense(8)(inside)))
    x, mask = keras.Input((4, 8)), keras.Input((4,), dtype="bool")
    # A mask is more than the inputs it was made for.
    model = keras.Model([x, mask], layers.Dense(3)(block(layers.Dense(8)(x), mask=mask)))
    assert model.auto_pipeline_stage_assignment(3, print_fn=None) == [0, 1, 1, 2]


def test_shapes_must_be_known(scope):
    with pytest.raises(RuntimeError, match=r"have no shapes yet. Build it first"):
        keras.Sequential([layers.Dense(3), layers.Dense(2)]).auto_pipeline_stage_assignment(2)
    x = keras.Input((None, 3))
    with pytest.raises(ValueError, match=r"all dimensions but the batch must be known"):
        keras.Model(x, layers.Dense(3)(x)).auto_pipeline_stage_assignment(1)
