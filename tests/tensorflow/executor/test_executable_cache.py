"""Programs that were compiled before are loaded, and run exactly as when they were compiled."""

import contextlib
import logging
import os
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from openipu import hardware
from openipu.compiler import cache
from openipu.compiler.serialised import Loaded
from openipu.errors import UnsupportedError
from openipu.tensorflow.executor import run, setting
from tests.tensorflow.keras.parallel import ipus

X = np.random.default_rng(0).standard_normal((32, 3)).astype(np.float32)
Y = X.sum(1, keepdims=True)
PRE_COMPILE = ipu.config.DeviceConnectionType.PRE_COMPILE


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of executables."""
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--executable_cache_path={tmp_path / 'kept'}")
    return tmp_path / "kept"


@contextlib.contextmanager
def precompiling():
    """Nothing is attached; programs are compiled for another run."""
    ipu.config.reset_ipu_configuration()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.device_connection.type = PRE_COMPILE
    config.device_connection.version = "ipu2"
    config.configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()
    try:
        with strategy.scope():
            yield strategy
    finally:
        ipu.config.reset_ipu_configuration()


def build(units=4, rate=0.1, momentum=0.0, dropout=0.0, loss="mse", per_execution=4, accumulation=1):
    """A model that begins with the same weights and seeds as every other; its names are its own."""
    keras.utils.set_random_seed(3)
    layers = [keras.Input((3,)), keras.layers.Dense(units, "tanh"), keras.layers.Dense(1)]
    if dropout:
        layers.insert(2, keras.layers.Dropout(dropout))
    model = keras.Sequential(layers)
    if accumulation > 1:
        model.set_gradient_accumulation_options(accumulation, "mean")
    model.compile(keras.optimizers.SGD(rate, momentum), loss, metrics=["mae"], steps_per_execution=per_execution)
    return model


def fit(model, batch_size=4, epochs=1):
    return model.fit(X, Y, batch_size=batch_size, epochs=epochs, shuffle=False, verbose=0).history


def loaded(model):
    """For every mode of a model whether its executable was loaded."""
    return {
        key[0]: isinstance(made.session.engine.executable.call, Loaded) for key, made in model._ipu.compiled.items()
    }


def variables(model):
    return [np.asarray(v) for v in (*model.variables, *model.optimizer.variables)]


def assert_equal(first, second):
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("replicas", "accumulation"), [(1, 1), (2, 2)])
def test_the_second_of_two_equal_models_is_loaded_and_trains_exactly_as_the_first(folder, replicas, accumulation):
    with ipus(replicas):
        models, results = [], []
        for _ in range(2):
            model = build(momentum=0.9, dropout=0.5, accumulation=accumulation)
            history = fit(model, epochs=2)
            seen = model.evaluate(X, Y, batch_size=4, verbose=0)
            predicted = model.predict(X, batch_size=4, verbose=0)
            models.append(model)
            results.append([*history.values(), seen, predicted, *variables(model)])
        assert models[0].name != models[1].name
        assert loaded(models[0]) == {"train": False, "test": False, "predict": False}
        assert loaded(models[1]) == {"train": True, "test": True, "predict": True}
        assert_equal(*results)
        untrained = build(momentum=0.9, dropout=0.5)
        assert not np.array_equal(untrained.get_weights()[0], models[1].get_weights()[0])
    assert len(cache.entries(folder)) == len(list(folder.iterdir())) == 3
    assert {path.suffix for path in folder.iterdir()} == {".poplar_exec"}


def test_a_learning_rate_that_is_a_variable_is_not_part_of_the_program(folder, strategy):
    with strategy.scope():
        models = [build(rate=rate, per_execution=1) for rate in (0.01, 0.02)]
        before = [w.copy() for w in models[0].get_weights()]
        for model in models:
            fit(model, batch_size=len(X))
    assert [loaded(model) for model in models] == [{"train": False}, {"train": True}]
    once, twice = ([a - b for a, b in zip(before, model.get_weights(), strict=True)] for model in models)
    for one, other in zip(once, twice, strict=True):
        np.testing.assert_allclose(2 * one, other, rtol=1e-3, atol=1e-6)
    assert any(np.abs(one).max() > 0 for one in once)


def schedule(rate):
    return keras.optimizers.schedules.InverseTimeDecay(rate, 10, 0.5)


class Found(Exception):
    """Carries the key that was looked for."""


class Asked(cache.Cache):
    """A cache that ends compilation before it begins: capture and key are all that is wanted."""

    def load(self, key):
        raise Found(key)


def test_what_is_compiled_in_makes_another_program(strategy, monkeypatch):
    monkeypatch.setattr(setting, "executable_cache", lambda: Asked("nowhere"))

    def key_of(batch_size=4, **options):
        with strategy.scope(), pytest.raises(Found) as caught:
            fit(build(**options), batch_size)
        return caught.value.args[0]

    different = [
        {},
        {"units": 5},
        {"momentum": 0.5},
        {"per_execution": 2},
        {"batch_size": 8},
        {"rate": schedule(0.1)},
        {"rate": schedule(0.2)},
    ]
    keys = [key_of(**options) for options in different]
    assert len(set(keys)) == len(keys)
    assert key_of(rate=schedule(0.2)) == keys[-1]


def was_loaded(function):
    """Whether the program of a function that was run on the strategy was loaded."""
    (made,) = run._compiled[function].values()
    return isinstance(made.session.engine.executable.call, Loaded)


def test_functions_are_cached_too(folder, strategy):
    def make(start):
        total = tf.Variable(start)

        @tf.function
        def step(x):
            total.assign_add(tf.reduce_sum(x) * 0.5)
            return total * 2.0

        return step, total

    with strategy.scope():
        for start, again in ((1.0, False), (5.0, True)):
            step, total = make(start)
            results = [float(strategy.run(step, (tf.constant([2.0, 4.0]),))) for _ in range(2)]
            assert was_loaded(step) is again
            assert results == [2 * (start + 3), 2 * (start + 6)] and float(total) == start + 6


def test_without_a_folder_nothing_is_found(strategy, monkeypatch):
    monkeypatch.delenv("TF_POPLAR_FLAGS", raising=False)
    monkeypatch.delenv("OPENIPU_CACHE", raising=False)
    for _ in range(2):
        step = tf.function(lambda x: x * 2.0)
        assert float(strategy.run(step, (tf.constant(2.0),))) == 4.0
        assert not was_loaded(step)


def test_functions_that_look_alike_are_told_apart(folder, strategy):
    table = [tf.constant([1.0, 2.0]), tf.constant([1.0, 3.0])]
    low, high = tf.Variable(-1.0), tf.Variable(1.0)
    functions = [
        (lambda x: x * 2.0, 5 * 2),
        (lambda x: x * 3.0, 5 * 3),
        # Tensors that a function closes over are no part of its text.
        (lambda x: x + table[0], [6, 7]),
        (lambda x: x + table[1], [6, 8]),
        # The same program: which variables it works on is not compiled in.
        (lambda x: x * low - high, -6),
        (lambda x: x * high - low, 6),
        # The same reductions, in other places.
        (lambda x: tf.reduce_max(x + table[0]) - tf.reduce_min(x * 2.0), -3),
        (lambda x: tf.reduce_min(x + table[0]) - tf.reduce_max(x * 2.0), -4),
    ]
    for function, expected in functions:
        wrapped = tf.function(function)
        result = strategy.run(wrapped, (tf.constant([5.0, 5.0]),))
        np.testing.assert_array_equal(result, np.broadcast_to(np.float32(expected), result.shape))
    assert len(cache.entries(folder)) == len(functions) - 1


def test_a_program_that_prints_is_compiled_every_time_and_prints(folder, strategy, capfd, caplog):
    caplog.set_level(logging.INFO, "openipu")
    for _ in range(2):

        @tf.function
        def step(x):
            return ipu.internal_ops.print_tensor(x * 3.0, name="seen") + 1.0

        assert float(strategy.run(step, (tf.constant(2.0),))) == 7.0
        assert not was_loaded(step)
        assert "seen" in capfd.readouterr().err
    assert cache.entries(folder) == []
    assert "step prints from the device, so its executable is not kept" in caplog.text


def test_precompiling_wants_a_folder(monkeypatch):
    monkeypatch.delenv("TF_POPLAR_FLAGS", raising=False)
    monkeypatch.delenv("OPENIPU_CACHE", raising=False)
    with precompiling(), pytest.raises(tf.errors.FailedPreconditionError, match="--executable_cache_path"):
        build().predict(X, batch_size=4, verbose=0)


def test_what_is_precompiled_is_loaded_by_a_normal_run(folder, caplog):
    caplog.set_level(logging.INFO, "openipu")
    with precompiling():
        model = build()
        before = variables(model)
        history = fit(model, epochs=2)
        assert set(history) == {"loss", "mae"} and np.allclose(list(history.values()), 0)
        np.testing.assert_array_equal(model.predict(X, batch_size=4, verbose=0), np.zeros((32, 1)))
        assert_equal(before, variables(model))
        assert hardware.attached() == ()
    said = {r.message for r in caplog.records if "pre-compiled" in r.message}
    paths = cache.entries(folder)
    assert said == {f"A pre-compiled Poplar program has been saved to {path}" for path in paths}
    assert len(paths) == 2

    with ipus(1):
        real = build()
        losses = fit(real, epochs=2)["loss"]
        real.predict(X, batch_size=4, verbose=0)
        assert loaded(real) == {"train": True, "predict": True}
        assert min(losses) > 0 and not np.array_equal(before[0], variables(real)[0])
    assert len(cache.entries(folder)) == 2


def test_a_model_that_was_precompiled_trains_once_devices_are_there(folder):
    with precompiling():
        model = build()
        before = variables(model)
        fit(model)
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    assert min(fit(model)["loss"]) > 0
    assert not np.array_equal(before[0], variables(model)[0])
    ipu.config.reset_ipu_configuration()


def test_precompiled_functions_give_zeros(folder):
    with precompiling() as strategy:
        total = tf.Variable(4.0)

        @tf.function
        def step(x):
            total.assign_add(1.0)
            return {"out": x + total, "count": tf.size(x)}

        result = strategy.run(step, (tf.ones((2, 3)),))
        np.testing.assert_array_equal(result["out"], np.zeros((2, 3), np.float32))
        assert int(result["count"]) == 0 and float(total) == 4.0
        assert len(cache.entries(folder)) == 1 and hardware.attached() == ()


def test_what_prints_cannot_be_precompiled(folder):
    @tf.function
    def step(x):
        return ipu.internal_ops.print_tensor(x)

    with precompiling() as strategy, pytest.raises(UnsupportedError, match="step cannot be compiled in advance"):
        strategy.run(step, (tf.constant(2.0),))


SCRIPT = """
    import keras
    import numpy as np
    from tensorflow.python import ipu

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    keras.utils.set_random_seed(3)
    with ipu.ipu_strategy.IPUStrategy().scope():
        x = np.linspace(0, 1, 24, dtype=np.float32).reshape(8, 3)
        layers = [keras.Input((3,)), keras.layers.Dense(4, "tanh"), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile("adam", "mse", steps_per_execution=2)
        print(model.fit(x, x[:, :1], batch_size=4, verbose=0).history)
        print(model.predict(x, batch_size=4, verbose=0).tolist())
        print([w.tolist() for w in model.get_weights()])
"""


def test_a_second_process_loads_every_executable(folder):
    environment = {**os.environ, "OPENIPU_LOG": "info"}
    ended = [
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(SCRIPT)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        for _ in range(2)
    ]
    assert [run.returncode for run in ended] == [0, 0], ended[0].stderr
    assert ended[0].stdout == ended[1].stdout and len(ended[0].stdout.splitlines()) == 3
    paths = {path.name for path in cache.entries(folder)}
    lines = [[line for line in run.stderr.splitlines() if "Loaded the executable" in line] for run in ended]
    assert lines[0] == [] and len(lines[1]) == len(paths) == 2
    assert all(any(name in line for line in lines[1]) for name in paths)
