"""Threads that share a model take turns; forked processes are told at once; spawned ones and copies work."""

import copy
import io
import os
import pickle
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch

import poptorch
from tests.faults.children import in_child, loss_of_a_step
from tests.faults.test_keras import X, Y
from tests.faults.test_torch import Net
from tests.tensorflow.conftest import strategy  # noqa: F401

THREADS, EXECUTIONS = 4, 100


def together(*actions):
    """Run functions at the same time, each in a thread; the first error is raised."""
    errors, barrier = [], threading.Barrier(len(actions))

    def guarded(action):
        try:
            barrier.wait(60)
            action()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


def classifier():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(6, "tanh"), keras.layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse")
    return model


def test_four_threads_train_a_keras_model_as_one_after_another(strategy):  # noqa: F811
    with strategy.scope():
        shared, alone = classifier(), classifier()

    def train(model, times):
        for _ in range(times):
            model.train_on_batch(X, Y)

    train(alone, THREADS * EXECUTIONS)
    # Nothing is compiled before: the first calls race too.
    together(*[lambda: train(shared, EXECUTIONS)] * THREADS)
    for mine, theirs in zip(shared.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_threads_fit_predict_and_read_one_keras_model(strategy):  # noqa: F811
    with strategy.scope():
        model, alone = classifier(), classifier()
    alone.fit(X, Y, batch_size=8, epochs=EXECUTIONS, verbose=0, shuffle=False)
    seen = []

    def predict():
        for _ in range(20):
            seen.append(model.predict(X, batch_size=8, verbose=0))

    def read():
        for _ in range(EXECUTIONS):
            assert all(np.isfinite(w).all() for w in model.get_weights())

    fit = lambda: model.fit(X, Y, batch_size=8, epochs=EXECUTIONS, verbose=0, shuffle=False)  # noqa: E731
    together(fit, predict, predict, read)
    assert all(np.isfinite(s).all() for s in seen)
    for mine, theirs in zip(model.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def batch():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(8, 4, generator=generator), torch.randn(8, 2, generator=generator)


def test_four_threads_call_one_poptorch_executor_as_one_after_another():
    models = [Net(), Net()]
    shared, alone = (poptorch.trainingModel(m, None, poptorch.optim.SGD(m.parameters(), lr=0.01)) for m in models)

    def train(executor, times):
        for _ in range(times):
            executor(*batch())

    train(alone, THREADS * EXECUTIONS)
    together(*[lambda: train(shared, EXECUTIONS)] * THREADS)
    for mine, theirs in zip(models[0].state_dict().values(), models[1].state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    shared.destroy(), alone.destroy()


def test_two_executors_of_one_module_and_its_reader():
    model = Net()
    training = poptorch.trainingModel(model, None, poptorch.optim.SGD(model.parameters(), lr=0.01))
    inference = poptorch.inferenceModel(model)
    x, y = batch()
    training(x, y), inference(x)

    def read():
        for _ in range(EXECUTIONS):
            assert all(torch.isfinite(p).all() for p in model.parameters())

    together(
        lambda: [training(x, y) for _ in range(EXECUTIONS)],
        lambda: [inference(x) for _ in range(EXECUTIONS)],
        read,
    )
    training.destroy(), inference.destroy()


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


@forks
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_child_reads_poptorch_weights_and_is_told_to_be_spawned():
    model = Net()
    training = poptorch.trainingModel(model)
    training(*batch())
    weights = in_child(lambda: model.body[0].weight.detach().numpy().tolist())
    torch.testing.assert_close(torch.tensor(weights), model.body[0].weight.detach())
    for action in (
        lambda: training(*batch()),
        lambda: poptorch.inferenceModel(Net())(batch()[0]),
    ):
        assert "spawn" in in_child(action)
    training(*batch())
    training.destroy()


@forks
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_child_reads_keras_weights_and_is_told_to_be_spawned(strategy):  # noqa: F811
    with strategy.scope():
        model = classifier()
    model.fit(X, Y, batch_size=8, verbose=0)
    weights = in_child(lambda: model.get_weights()[0].tolist())
    np.testing.assert_array_equal(np.float32(weights), model.get_weights()[0])
    for action in (
        lambda: model.fit(X, Y, batch_size=8, verbose=0),
        lambda: model.predict(X, batch_size=8, verbose=0),
        lambda: strategy.run(tf.function(lambda: tf.constant(1))),
    ):
        assert "spawn" in in_child(action)


def test_a_spawned_child_trains():
    assert in_child(loss_of_a_step, "spawn") == pytest.approx(loss_of_a_step(), rel=1e-6)


def joblib_like(model):
    """What joblib and multiprocessing do: pickled by the protocol they use, made again elsewhere."""
    stream = io.BytesIO()
    pickle.Pickler(stream, protocol=pickle.HIGHEST_PROTOCOL).dump({"model": model, "more": [1, 2]})
    return pickle.loads(stream.getvalue())["model"]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), joblib_like])
@pytest.mark.parametrize("inside", [True, False])
def test_copies_of_a_keras_model_train_on_as_it_does(strategy, copied, inside):  # noqa: F811
    with strategy.scope():
        model = classifier()
    model.fit(X, Y, batch_size=8, epochs=3, verbose=0)
    if inside:
        with strategy.scope():
            twin = copied(model)
    else:
        twin = copied(model)
    for one in (model, twin):
        one.fit(X, Y, batch_size=8, epochs=3, verbose=0, shuffle=False)
    for mine, theirs in zip(twin.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
