"""Every optimizer of Keras updates weights on a virtual IPU as it does elsewhere."""

import keras
import numpy as np
import pytest
from keras import layers, optimizers

schedules = optimizers.schedules

CASES = {
    "sgd_nesterov": lambda: optimizers.SGD(0.02, momentum=0.9, nesterov=True),
    "rmsprop_centered": lambda: optimizers.RMSprop(0.01, epsilon=1e-3, momentum=0.5, centered=True),
    "adam_amsgrad": lambda: optimizers.Adam(0.01, epsilon=1e-3, amsgrad=True),
    "adamw": lambda: optimizers.AdamW(0.01, epsilon=1e-3, weight_decay=0.01),
    "adagrad": lambda: optimizers.Adagrad(0.05),
    "adadelta": lambda: optimizers.Adadelta(0.5),
    "adamax": lambda: optimizers.Adamax(0.01, epsilon=1e-3),
    "nadam": lambda: optimizers.Nadam(0.01, epsilon=1e-3),
    "ftrl": lambda: optimizers.Ftrl(0.05),
    "lion": lambda: optimizers.Lion(0.001),
    "lamb": lambda: optimizers.Lamb(0.01, epsilon=1e-3),
    "adafactor": lambda: optimizers.Adafactor(0.01),
    "muon": lambda: optimizers.Muon(0.01),
    "clipnorm": lambda: optimizers.SGD(0.1, clipnorm=0.05),
    "clipvalue": lambda: optimizers.SGD(0.1, clipvalue=0.01),
    "global_clipnorm": lambda: optimizers.SGD(0.1, global_clipnorm=0.05),
    "weight_decay_and_average": lambda: optimizers.Adam(
        0.01, epsilon=1e-3, weight_decay=0.01, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=7
    ),
    "exponential_decay": lambda: optimizers.SGD(schedules.ExponentialDecay(0.1, 3, 0.8, staircase=True)),
    "cosine_decay": lambda: optimizers.SGD(schedules.CosineDecay(0.0, 30, warmup_target=0.1, warmup_steps=5)),
    "piecewise_constant": lambda: optimizers.SGD(schedules.PiecewiseConstantDecay([4, 9], [0.1, 0.05, 0.2])),
    "cosine_restarts_times_inverse": lambda: optimizers.SGD(schedules.CosineDecayRestarts(0.1, 6), momentum=0.5),
    "polynomial": lambda: optimizers.SGD(schedules.PolynomialDecay(0.1, 15, 0.01, power=2.0)),
}


@pytest.mark.parametrize("optimizer", CASES.values(), ids=CASES.keys())
def test_optimizer(optimizer, side_by_side):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((160, 6)), rng.standard_normal((160, 3))

    def build():
        return keras.Sequential([layers.Input((6,)), layers.Dense(8, "tanh"), layers.Dense(3)])

    stock, model = side_by_side(build, (x, y), lambda: {"optimizer": optimizer(), "loss": "mse"}, steps=20)
    assert int(model.optimizer.iterations) == int(stock.optimizer.iterations) == 20
    for one, other in zip(stock.optimizer.variables, model.optimizer.variables, strict=True):
        np.testing.assert_allclose(np.array(other), np.array(one), rtol=1e-4, atol=1e-6, err_msg=one.path)


def test_repeated_rows_of_an_embedding_are_summed_before_an_optimizer_squares_them(side_by_side):
    """Stock Keras 3 squares repeated rows one by one in these optimizers; without repetition both agree."""
    rng = np.random.default_rng(0)
    x = np.stack([rng.permutation(40) for _ in range(20)]).reshape(160, 5).astype(np.int32)

    def build():
        return keras.Sequential([layers.Input((5,)), layers.Embedding(40, 4), layers.Flatten(), layers.Dense(1)])

    compile_with = {"optimizer": lambda: optimizers.RMSprop(0.01, epsilon=1e-3), "loss": "mse"}
    side_by_side(
        build, (x, rng.standard_normal((160, 1))),
        lambda: {**compile_with, "optimizer": compile_with["optimizer"]()}, steps=20,
    )  # fmt: skip
