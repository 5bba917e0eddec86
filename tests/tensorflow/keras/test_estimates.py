"""What IPUConfig and the options of Keras models mean to the model of a real IPU."""

import logging

import attrs
import keras
import numpy as np
import pytest
from tensorflow.python import ipu

from openipu import hardware
from openipu.errors import OutOfMemoryError
from openipu.model import Category, OperationKind, Options, Partials, Pass, Recompute
from openipu.tensorflow.configuration.ipu_options import options_of, with_keywords
from openipu.tensorflow.program.layers import layer_of

layers = keras.layers


def fitted(strategy):
    with strategy.scope():
        own = [layers.Conv2D(4, 3, activation="relu", name="conv"), layers.Flatten(), layers.Dropout(0.5, name="drop")]
        model = keras.Sequential([keras.Input((8, 8, 1)), *own, layers.Dense(3, name="out")])
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(np.zeros((8, 8, 8, 1), np.float32), np.zeros(8, np.int32), batch_size=4, verbose=0)
    (compiled,) = model._ipu.compiled.values()
    return compiled.session


def test_a_configuration_is_handed_to_the_model():
    config = ipu.config.IPUConfig()
    config.allow_recompute = True
    config.convolutions.poplar_options = {"partialsType": "half", "availableMemoryProportion": "0.15"}
    config.matmuls.poplar_options = {"availableMemoryProportion": "0.3"}
    config.io_tiles.num_io_tiles = 32
    config.optimizations.maximum_cross_replica_sum_buffer_size = 2**20
    made = options_of(config, pipelined=True)
    assert made.partials is Partials.HALF and made.recompute is Recompute.STAGE
    assert (made.convolution_proportion, made.matmul_proportion) == (0.15, 0.3)
    assert made.io_tiles == 32 and made.overlap_host and made.collective_buffer == 2**20
    assert options_of(config).recompute is Recompute.CHEAP and options_of(None) == Options()


def test_keywords_of_pipelines_are_handed_to_the_model():
    given = {"offload_weight_update_variables": True, "replicated_optimizer_state_sharding": True}
    made = with_keywords(Options(), given, {"prefetch_depth": 3})
    assert made.offload_optimizer_state and made.shard_optimizer_state and made.prefetch_depth == 3
    assert not made.offload_weights


@pytest.mark.parametrize(
    ("scope", "layer"),
    [
        ("model_1/dense_1/MatMul", ("model/dense", False)),
        ("gradient_tape/model_1/dense_1_2/MatMul/MatMul_1", ("model/dense_1", True)),
        ("gradient_tape/model_1/conv_1/ReluGrad", ("model/conv", True)),
        ("model_1/drop_1/stateless_dropout/stateless_random_uniform/mul", ("model/drop", False)),
        ("compile_loss/mse/Mean", ("compile_loss/mse", False)),
        ("Add_3", ("", False)),
    ],
)
def test_layers_are_read_from_scopes(scope, layer):
    assert layer_of(scope, {"model"}) == layer


def test_a_fitted_model_is_estimated_layer_by_layer(strategy):
    made = fitted(strategy).estimate()
    products = {(o.layer.rpartition("/")[2], o.kind, o.phase) for o in made.operations if o.flops > 0}
    assert ("conv", OperationKind.CONVOLUTION, Pass.FORWARD) in products
    assert ("conv", OperationKind.CONVOLUTION, Pass.BACKWARD) in products
    assert ("out", OperationKind.MATMUL, Pass.BACKWARD) in products
    assert any(o.kind is OperationKind.RANDOM and o.layer.endswith("drop") for o in made.operations)
    # Adam keeps two values for each weight.
    categories = made.memory[0].categories
    assert categories[Category.OPTIMIZER_STATE] == pytest.approx(2 * categories[Category.WEIGHTS], rel=0.05)
    assert made.micro_batch == 4 and made.fits


@pytest.fixture
def tiny(monkeypatch):
    """IPUs with hardly any memory."""
    system = hardware.current_system()
    small = attrs.evolve(system, target=attrs.evolve(system.target, bytes_per_tile=4096))
    monkeypatch.setattr(hardware, "current_system", lambda: small)


def test_a_model_that_would_not_fit_is_warned_of_or_refused(strategy, tiny, monkeypatch, caplog):
    with caplog.at_level(logging.WARNING, "openipu.memory"):
        fitted(strategy)
    (record,) = [r for r in caplog.records if r.name == "openipu.memory"]
    assert "/train would not fit" in record.getMessage() and "too much" in record.getMessage()
    monkeypatch.setenv("OPENIPU_MEMORY", "error")
    with pytest.raises(OutOfMemoryError, match="would not fit"):
        fitted(strategy)
