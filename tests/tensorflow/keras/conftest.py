"""Train a model on a virtual IPU beside stock Keras, from the same weights, on the same batches."""

import keras
import numpy as np
import pytest


def differences(expected, received):
    """How far arrays are apart, each relative to its largest value."""
    return [
        float(np.abs(np.asarray(e, np.float64) - np.asarray(r, np.float64)).max(initial=0))
        / max(float(np.abs(np.asarray(e, np.float64)).max(initial=0)), 1e-6)
        for e, r in zip(expected, received, strict=True)
    ]


class Recorder(keras.callbacks.Callback):
    """Remembers the logs of batches."""

    def __init__(self):
        super().__init__()
        self.batches = {}

    def on_train_batch_end(self, batch, logs=None):
        self.batches[batch] = dict(logs)


@pytest.fixture
def twins(strategy):
    """A function that makes two equal models: a stock one and one on the IPU."""

    def make(build, compile_with, steps_per_execution=10):
        """`compile_with()` gives the arguments of `compile`, anew for each of the two."""
        keras.utils.clear_session()  # so that automatic names are the same
        keras.utils.set_random_seed(7)
        stock = build()
        stock.compile(**{"jit_compile": False, **compile_with()})
        keras.utils.clear_session()
        keras.utils.set_random_seed(7)
        with strategy.scope():
            model = build()
            if stock.built:
                model.set_weights(stock.get_weights())
            model.compile(**{**compile_with(), "jit_compile": "auto"}, steps_per_execution=steps_per_execution)
        return stock, model

    return make


@pytest.fixture
def side_by_side(twins):
    """A function that trains twins and checks that logs and weights agree."""

    def run(build, data, compile_with, steps=50, batch_size=8, tolerance=1e-5, per_execution=10, **fit):
        stock, model = twins(build, compile_with, per_execution)
        data = tuple(data)
        seen = []
        for one in (stock, model):
            recorder = Recorder()
            one.fit(*data, batch_size=batch_size, shuffle=False, verbose=0, callbacks=[recorder], **fit)
            seen.append(recorder.batches)
        assert len(seen[0]) == steps
        for batch, logs in seen[1].items():
            assert logs.keys() == seen[0][batch].keys()
            for name, value in logs.items():
                np.testing.assert_allclose(value, seen[0][batch][name], rtol=tolerance, atol=1e-6, err_msg=name)
        names = [w.path for w in stock.weights]
        apart = dict(zip(names, differences(stock.get_weights(), model.get_weights()), strict=True))
        assert max(apart.values(), default=0) < tolerance, apart
        return stock, model

    return run
