"""Automatic loss scaling beside NumPy and stock Keras; `test_keras2` runs the same with Keras 2."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

keras = tf.keras
layers, optimizers = keras.layers, keras.ipu.optimizers
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((64, 4)).astype(np.float32), RNG.standard_normal((64, 1)).astype(np.float32)


def dense(dtype="float32"):
    keras.utils.set_random_seed(3)
    x = keras.Input((4,), dtype=dtype)
    return keras.Model(x, layers.Dense(1, dtype=dtype)(layers.Dense(3, activation="tanh", dtype=dtype)(x)))


def trained(strategy, make, dtype="float32", steps=8, prepare=lambda model: None, loss="mse", build=dense):
    with strategy.scope():
        model = build(dtype)
        optimizer = make()
        model.compile(optimizer, loss, steps_per_execution=steps)
        prepare(model)
        model.fit(X.astype(dtype), Y.astype(dtype), batch_size=8, epochs=3, shuffle=False, verbose=0)
    return model, optimizer


def agree(model, other, tolerance=1e-6):
    for one, two in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(one, two, rtol=tolerance, atol=tolerance)


class Simulation:
    """The algorithm as the reference describes it, in NumPy."""

    def __init__(self, initial=1, every=8, step=2, limit=32768, all_calls=True, ratio=10e-6, only=False, alpha=0.0):
        self.factor, self.previous, self.count, self.histogram = float(initial), float(initial), 0, np.zeros(2)
        self.every, self.step, self.limit, self.all_calls = every, step, limit, all_calls
        self.ratio, self.only, self.alpha = ratio, only, alpha

    def call(self, gradients, captured):
        due = self.every == 1 or (self.count > 0 and self.count % self.every == 0)
        counted = [] if self.only else [g for g in gradients if g.dtype == np.float16]
        new = self.histogram.copy()
        for gradient in (*counted, *captured):
            large = int((np.abs(gradient.astype(np.float64)) >= 2**13).sum())
            new += (gradient.size - large, large)
        if self.all_calls or due:
            self.histogram = self.alpha * self.histogram + (1 - self.alpha) * new
        self.previous = self.factor
        if not due:
            self.count += 1
            return
        share = self.histogram[1] / self.histogram.sum() if self.histogram.sum() else 0.0
        wanted = self.factor / self.step if share > self.ratio else self.factor * self.step
        self.factor = wanted if 1 <= wanted < self.limit else self.factor
        self.histogram, self.count = np.zeros(2), 0


ALGORITHMS = {
    "defaults": {},
    "every_call": {"every": 1, "initial": 16},
    "every_second_call_by_four": {"every": 2, "step": 4, "initial": 4, "limit": 1024},
    "the_last_call_counts": {"every": 3, "all_calls": False},
    "low_pass": {"every": 4, "alpha": 0.5, "ratio": 0.2},
    "captured_only": {"every": 2, "only": True},
}
ARGUMENTS = {
    "initial": "initial_loss_scaling_factor", "every": "update_frequency", "step": "increase_factor",
    "limit": "max_loss_scaling_factor", "all_calls": "accumulate_statistics_over_update_period",
    "ratio": "ratio_threshold", "only": "captured_grads_only", "alpha": "lpf_alpha",
}  # fmt: skip


@pytest.mark.parametrize("case", ALGORITHMS.values(), ids=ALGORITHMS)
def test_the_factor_follows_the_share_of_large_elements(case):
    simulation = Simulation(**case)
    optimizer = optimizers.ALSOptimizer(keras.optimizers.SGD(0.0), **{ARGUMENTS[k]: v for k, v in case.items()})
    half, single = tf.Variable(tf.zeros((2, 3), tf.float16)), tf.Variable(tf.zeros(4))
    if keras.__name__.startswith("keras"):
        half, single = (keras.Variable(v.numpy(), dtype=v.dtype.name) for v in (half, single))
    rng = np.random.default_rng(1)
    for _ in range(30):
        gradients = [(rng.standard_normal((2, 3)) * 4000).astype(np.float16), np.full(4, 1e6, np.float32)]
        captured = [(rng.standard_normal(5) * 7000).astype(np.float16)]
        pairs = zip(map(tf.constant, gradients), (half, single), strict=True)
        optimizer.apply_gradients(pairs, captured_grads={"tag": [tf.constant(captured[0])]})
        simulation.call(gradients, captured)
        assert float(optimizer.loss_scaling_factor) == simulation.factor
        assert float(optimizer.previous_loss_scaling_factor) == simulation.previous
        assert int(optimizer.update_counter) == simulation.count
        np.testing.assert_allclose(optimizer.histogram, simulation.histogram, rtol=1e-6)
        if simulation.histogram.sum():
            normalized = simulation.histogram / simulation.histogram.sum()
            np.testing.assert_allclose(optimizer.normalized_histogram, normalized, rtol=1e-6)
    optimizer.reset()
    assert float(optimizer.loss_scaling_factor) == optimizer.initial_loss_scaling_factor
    assert int(optimizer.update_counter) == 0 and not np.any(optimizer.histogram)


def test_what_has_overflowed_is_large():
    optimizer = optimizers.ALSOptimizer(keras.optimizers.SGD(0.0), update_frequency=1, initial_loss_scaling_factor=8)
    weight = tf.Variable(tf.zeros(2, tf.float16))
    weight = keras.Variable(weight.numpy(), dtype="float16") if keras.__name__.startswith("keras") else weight
    optimizer.apply_gradients([(tf.constant([np.nan, np.inf], tf.float16), weight)])
    assert float(optimizer.loss_scaling_factor) == 4


PAIRS = {
    "sgd": (lambda: keras.optimizers.SGD(0.05), lambda **k: optimizers.ALSOptimizer(keras.optimizers.SGD(0.05), **k)),
    "adam": (
        lambda: keras.optimizers.Adam(0.01, epsilon=1e-3),
        lambda **k: optimizers.ALSOptimizer(keras.optimizers.Adam(0.01, epsilon=1e-3), **k),
    ),
    "clipped": (
        lambda: keras.optimizers.SGD(0.5, clipnorm=0.1),
        lambda **k: optimizers.ALSOptimizer(keras.optimizers.SGD(0.5, clipnorm=0.1), **k),
    ),
    "own_sgd": (lambda: keras.optimizers.SGD(0.05), lambda **k: optimizers.ALSOptimizerSGD(0.05, **k)),
    "own_momentum": (
        lambda: keras.optimizers.SGD(0.05, momentum=0.9),
        lambda **k: optimizers.ALSOptimizerSGD(0.05, 0.9, **k),
    ),
    "own_adam": (
        lambda: keras.optimizers.Adam(0.01, epsilon=1e-3),
        lambda **k: optimizers.ALSOptimizerAdam(0.01, epsilon=1e-3, **k),
    ),
    "own_rmsprop": (
        lambda: keras.optimizers.RMSprop(0.01, momentum=0.5, epsilon=1e-3, centered=True),
        lambda **k: optimizers.ALSOptimizerRMSProp(0.01, 0.9, 0.5, 1e-3, True, **k),
    ),
    "own_schedule": (
        lambda: keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 3, 0.8)),
        lambda **k: optimizers.ALSOptimizerSGD(keras.optimizers.schedules.ExponentialDecay(0.1, 3, 0.8), **k),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_a_model_trains_as_with_the_optimizer_alone_while_the_factor_changes(name, strategy):
    plain, scaling = PAIRS[name]
    stock = dense()
    stock.compile(plain(), "mse")
    stock.fit(X, Y, batch_size=8, epochs=3, shuffle=False, verbose=0)
    model, optimizer = trained(strategy, lambda: scaling(update_frequency=1, max_loss_scaling_factor=2**12))
    agree(model, stock, 2e-5)
    # Float32 gradients are not counted: nothing is large, and the factor grows to its limit.
    assert float(optimizer.loss_scaling_factor) == 2**11 and int(optimizer.iterations) == 24


def test_settings_changed_after_a_fit_hold_in_the_next(strategy):
    model, optimizer = trained(
        strategy, lambda: optimizers.ALSOptimizer(keras.optimizers.SGD(0.05), update_frequency=1000)
    )
    assert float(optimizer.loss_scaling_factor) == 1 and int(optimizer.update_counter) == 24
    optimizer.update_frequency = 1
    model.fit(X, Y, batch_size=8, verbose=0)
    assert float(optimizer.loss_scaling_factor) == 2**8


def test_gradients_too_small_for_float16_train_a_float16_model(strategy):
    def tiny(y, prediction):
        return tf.reduce_sum(prediction * y) * y[0, 0]

    def build(dtype):
        x = keras.Input((4,), dtype=dtype)
        return keras.Model(x, layers.Dense(1, kernel_initializer="zeros", use_bias=False, dtype=dtype)(x))

    ones, small = np.ones((8, 4), np.float16), np.full((8, 1), 2.0**-15, np.float16)
    moved = {}
    for make in (
        lambda: keras.optimizers.SGD(6e4),
        lambda: optimizers.ALSOptimizerSGD(6e4, 0.0, 2**14, 100, 2, 2**16),
    ):
        with strategy.scope():
            optimizer, model = make(), build("float16")
            model.compile(optimizer, tiny)
            model.fit(ones, small, batch_size=8, verbose=0)
        moved[type(optimizer).__name__] = model.get_weights()[0]
    assert not np.any(moved["SGD"])
    np.testing.assert_allclose(moved["ALSOptimizerSGD"], -6e4 * 8 * 2.0**-30, rtol=1e-2)


def test_accumulated_gradients_are_scaled_and_counted_once(strategy):
    stock = dense()
    stock.compile(keras.optimizers.SGD(0.05), "mse")
    stock.fit(X, Y, batch_size=32, epochs=3, shuffle=False, verbose=0)

    def accumulate(model):
        model.set_gradient_accumulation_options(4, gradient_accumulation_reduction_method="mean")

    model, optimizer = trained(
        strategy, lambda: optimizers.ALSOptimizer(keras.optimizers.SGD(0.05), update_frequency=1), prepare=accumulate
    )
    agree(model, stock, 2e-5)
    assert float(optimizer.loss_scaling_factor) == 2**6


def test_an_accumulating_optimizer_around_it(strategy):
    stock = dense()
    stock.compile(keras.optimizers.SGD(0.05), "mse")
    stock.fit(X, Y, batch_size=32, epochs=3, shuffle=False, verbose=0)

    def make():
        inner = optimizers.ALSOptimizer(keras.optimizers.SGD(0.05), update_frequency=2)
        return optimizers.ALSGradientAccumulationOptimizer(inner, 4, reduction_method="mean")

    model, optimizer = trained(strategy, make)
    agree(model, stock, 2e-5)
    assert optimizer.als_optimizer.update_frequency == optimizer.update_frequency == 2
    assert float(optimizer.loss_scaling_factor) == 4  # six updates: every third call with a counter of two
    with pytest.raises(ValueError, match="must be used with an ALSOptimizer"):
        optimizers.ALSGradientAccumulationOptimizer(keras.optimizers.SGD(), 4)


def test_captured_gradients_are_counted_in_fit(strategy):
    def build(dtype):
        x = keras.Input((4,), dtype=dtype)
        captured = keras.ipu.layers.CaptureUpstreamGradients(layers.Dense(3, activation="tanh", dtype=dtype), "here")
        return keras.Model(x, layers.Dense(1, dtype=dtype)(captured(x)))

    def make():
        return optimizers.ALSOptimizer(
            keras.optimizers.SGD(0.01), update_frequency=100, captured_grads_only=True, histogram_bin_edge=1e-30
        )

    _, optimizer = trained(strategy, make, "float16", build=build)
    assert np.sum(optimizer.histogram) == 24 * 8 * 3
    assert np.array(optimizer.histogram)[1] > 0  # nearly all elements are beyond so small an edge
    # Changing what is counted starts anew.
    optimizer.captured_grads_only = False
    assert not np.any(optimizer.histogram)


def test_keras_does_not_scale_the_loss_a_second_time(strategy):
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model, optimizer = trained(
            strategy, lambda: optimizers.ALSOptimizer(keras.optimizers.SGD(0.01), initial_loss_scaling_factor=256)
        )
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert model.optimizer is optimizer
    stock = dense()
    stock.compile(keras.optimizers.SGD(0.01), "mse")
    stock.fit(X, Y, batch_size=8, epochs=3, shuffle=False, verbose=0)
    agree(model, stock, 1e-3)


def test_a_loop_of_the_users_own(strategy):
    with strategy.scope():
        model = dense()
        optimizer = optimizers.ALSOptimizer(keras.optimizers.SGD(0.05), update_frequency=1)

        @tf.function
        def step(x, y):
            with ipu.eager.backprop.GradientCaptureTape() as tape:
                loss = optimizer.get_scaled_loss(tf.reduce_mean(tf.square(model(x) - y)))
            variables = model.trainable_variables
            gradients = tape.gradient(loss, variables)
            optimizer.apply_gradients(zip(gradients, variables), captured_grads=tape.captured_gradients)  # noqa: B905
            return loss

        losses = [float(strategy.run(step, (X[:8], Y[:8]))) / 2**n for n in range(6)]
    assert all(later < before for before, later in itertools.pairwise(losses))
    assert float(optimizer.loss_scaling_factor) == 2**6


REFUSED = {
    "update_frequency": ({"update_frequency": 0}, "update_frequency must be nonzero and positive"),
    "increase_factor": ({"increase_factor": 3}, "increase_factor must be a power of two"),
    "initial": ({"initial_loss_scaling_factor": 5}, "initial_loss_scaling_factor must be a power of two"),
    "limit": ({"max_loss_scaling_factor": 100}, "max_loss_scaling_factor must be a power of two"),
    "beyond": (
        {"initial_loss_scaling_factor": 32768},
        "initial_loss_scaling_factor must be less than max_loss_scaling_factor",
    ),
    "next": ({"initial_loss_scaling_factor": 16384}, "increase_factor must be less than max_loss_scaling_factor"),
    "ratio": ({"ratio_threshold": 1.0}, "ratio_threshold must be greater than zero and less than one"),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "text"), REFUSED.values(), ids=REFUSED)
def test_settings_that_make_no_sense_are_refused(arguments, text):
    with pytest.raises(ValueError, match=text):
        optimizers.ALSOptimizer(keras.optimizers.SGD(), **arguments)
    optimizer = optimizers.ALSOptimizerAdam()
    with pytest.raises(ValueError, match=text):
        for name, value in arguments.items():
            setattr(optimizer, name, value)


def test_statistics_are_read_only():
    optimizer = optimizers.ALSOptimizerSGD()
    assert optimizer.supports_captured_grads and optimizer.decrease_factor == 0.5
    for name in ("loss_scaling_factor", "previous_loss_scaling_factor", "histogram", "normalized_histogram",
                 "update_counter", "decrease_factor"):  # fmt: skip
        with pytest.raises(ValueError, match=f"{name} is a read only property."):
            setattr(optimizer, name, 1)


MADE = {
    "around": lambda: optimizers.ALSOptimizer(keras.optimizers.Adam(0.02), 4, 3, lpf_alpha=0.25, name="mine"),
    "adam": lambda: optimizers.ALSOptimizerAdam(0.02, 0.8, 0.9, 1e-4, 4, 3, ratio_threshold=0.5),
    "sgd": lambda: optimizers.ALSOptimizerSGD(keras.optimizers.schedules.ExponentialDecay(0.1, 3, 0.8), 0.5),
    "rmsprop": lambda: optimizers.ALSOptimizerRMSProp(0.02, 0.8, 0.5, 1e-4, True),
    "accumulating": lambda: optimizers.ALSGradientAccumulationOptimizer(optimizers.ALSOptimizerSGD(0.3), 4),
}


@pytest.mark.parametrize("name", MADE)
def test_they_are_made_again_from_their_config(name):
    optimizer = MADE[name]()
    config = optimizer.get_config()
    known = {kind.__name__: kind for kind in (optimizers.ALSOptimizer, optimizers.ALSOptimizerSGD)}
    again = type(optimizer).from_config(config, custom_objects=known)
    own = [{k: v for k, v in c.items() if k not in ("opt", "als_optimizer")} for c in (again.get_config(), config)]
    assert own[0] == own[1] and type(again.inner_optimizer) is type(optimizer.inner_optimizer)
    assert float(again.learning_rate) == float(optimizer.learning_rate)


def test_its_state_is_saved_with_a_checkpoint(strategy, tmp_path):
    model, optimizer = trained(strategy, lambda: optimizers.ALSOptimizerSGD(0.05, 0.9, update_frequency=1))
    path = tf.train.Checkpoint(optimizer=optimizer).save(str(tmp_path / "c"))
    other = optimizers.ALSOptimizerSGD(0.05, 0.9, update_frequency=1)
    other.build(model.trainable_variables)
    tf.train.Checkpoint(optimizer=other).restore(path).expect_partial()
    assert float(other.loss_scaling_factor) == float(optimizer.loss_scaling_factor) > 1
    variable = model.trainable_variables[0]
    np.testing.assert_array_equal(other.get_slot(variable, "momentum"), optimizer.get_slot(variable, "momentum"))
