"""The interface: types, aliases, scopes, refusals, and use under JAX transformations."""

import json

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla

from openipu.errors import UnsupportedError
from openipu.tensorflow.stablehlo import custom_call, lower
from openipu.tensorflow.stablehlo.custom_calls import _CALLS

L = keras.layers


def _identity(x, name="openipu.identity", **config):
    return xla.custom_call_v2(name, [x], [tf.TensorSpec(x.shape, x.dtype)], backend_config=json.dumps(config))[0]


def test_types_and_aliases_name_the_state(captured):
    counter = tf.Variable(tf.zeros((), tf.int64))
    weights = tf.Variable(tf.ones((3,)))

    def step(x):
        counter.assign_add(1)
        weights.assign_sub(0.5 * x)
        return tf.reduce_sum(weights * x)

    text, state = captured(step, np.ones(3, np.float32))
    low = lower(text)
    assert (low.inputs[0].shape, low.inputs[0].dtype) == ((3,), np.float32)
    assert {low.inputs[i].dtype for i in low.aliases.values()} == {np.dtype(np.int64), np.dtype(np.float32)}
    with jax.enable_x64(True):
        results = low(jnp.full(3, 2.0, np.float32), *map(jnp.asarray, state))
    new = {low.inputs[i].dtype.name: np.asarray(results[o]) for o, i in low.aliases.items()}
    assert new["int64"] == 1
    np.testing.assert_array_equal(new["float32"], np.zeros(3))


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "rmsprop", "adamw"])
def test_a_training_step_updates_variables_as_keras_does(captured, optimizer):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([L.Dense(4, "relu"), L.BatchNormalization(), L.Dropout(0.3), L.Dense(3)])
    x, y = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32), np.arange(6, dtype=np.int32) % 3
    model(x)
    rule = keras.optimizers.get(optimizer)
    rule.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        rule.apply(tape.gradient(loss, [v.value for v in model.trainable_variables]), model.trainable_variables)
        return loss

    compiled = tf.function(step, jit_compile=True)
    concrete = compiled.get_concrete_function(tf.TensorSpec(x.shape, x.dtype), tf.TensorSpec(y.shape, y.dtype))
    variables = {id(v.handle): v for v in concrete.variables}
    held = [variables[id(handle)] for handle in concrete.captured_inputs]
    low = lower(compiled.experimental_get_compiler_ir(x, y)(stage="stablehlo"))
    assert not low.needs_key
    with jax.enable_x64(True):
        results = jax.jit(low, compiler_options={"xla_backend_optimization_level": 0})(
            x, y, *(jnp.asarray(v.numpy()) for v in held)
        )
    expected = compiled(x, y)
    np.testing.assert_allclose(results[0], expected, rtol=1e-5)
    for output, source in low.aliases.items():
        np.testing.assert_allclose(results[output], held[source - 2].numpy(), rtol=2e-5, atol=1e-5)


def test_operations_are_reported_with_their_layer(captured):
    model = keras.Sequential([L.Dense(4, name="first"), L.Dense(2, name="second")])
    model(np.zeros((1, 3), np.float32))
    text, state = captured(model, np.zeros((1, 3), np.float32))
    seen = []
    with jax.enable_x64(True):
        lower(text)(jnp.zeros((1, 3), np.float32), *map(jnp.asarray, state), on_op=lambda *call: seen.append(call))
    products = [scope for scope, name, results in seen if name.startswith("stablehlo.dot")]
    assert ["first" in products[0], "second" in products[1]] == [True, True]
    assert all(len(results) == 1 for _, _, results in seen)


def test_replicas_are_a_mapped_axis(captured):
    keras.utils.set_random_seed(1)
    layer = L.LSTM(3)
    x = np.random.default_rng(0).standard_normal((4, 2, 5, 3)).astype(np.float32)
    layer(x[0])
    text, state = captured(
        lambda a: [layer(a), tf.random.stateless_uniform((2,), tf.cast(a[0, 0, :2] * 99, tf.int32))], x[0]
    )
    low = lower(text)
    with jax.enable_x64(True):
        together = jax.jit(jax.vmap(lambda a: low(a, *state)))(jnp.asarray(x))
        one_by_one = jax.jit(lambda a: low(a, *state))
        apart = [one_by_one(jnp.asarray(a)) for a in x]
    for i, results in enumerate(apart):
        for one, many in zip(results, together, strict=True):
            np.testing.assert_allclose(many[i], one, rtol=1e-5, atol=1e-6)


def test_custom_calls_reach_their_handler(captured):
    x = np.arange(3, dtype=np.float32)
    low = lower(captured(lambda x: _identity(x) + 1, x)[0])
    np.testing.assert_array_equal(low(x)[0], x + 1)


def test_custom_calls_receive_their_configuration(captured):
    x = np.arange(3, dtype=np.float32)
    try:

        @custom_call("openipu.test_scale")
        def _(operands, config, kinds):
            assert kinds[0].shape == (3,)
            return [operands[0] * np.float32(config["factor"])]

        low = lower(captured(lambda x: _identity(x, "openipu.test_scale", factor=3), x)[0])
        np.testing.assert_array_equal(low(x)[0], 3 * x)
    finally:
        _CALLS.pop("openipu.test_scale", None)


def test_an_unknown_custom_call_is_refused_by_name(captured):
    def function(x):
        with tf.name_scope("block_3"):
            return _identity(x, "vendor.special")

    with pytest.raises(UnsupportedError, match=r"vendor\.special.*block_3"):
        lower(captured(function, np.zeros(3, np.float32))[0])


@pytest.mark.parametrize("name", ["mhlo.strange", "vendor.strange"])
def test_an_unknown_operation_is_refused_with_its_layer(name):
    text = f"""
    func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {{
      %0 = "{name}"(%a) : (tensor<2xf32>) -> tensor<2xf32> loc("functional_1/conv2d/Strange")
      return %0 : tensor<2xf32>
    }}"""
    with pytest.raises(UnsupportedError, match=rf"{name}.*functional_1/conv2d/Strange"):
        lower(text)


def test_collectives_are_refused_with_the_way_round():
    text = """
    func.func @main(%a: tensor<2xf32>) -> tensor<ui32> {
      %0 = stablehlo.replica_id : tensor<ui32> loc("model/where")
      return %0 : tensor<ui32>
    }"""
    with pytest.raises(UnsupportedError, match=r"replica_id.*model/where.*cross-replica"):
        lower(text)


def test_shapes_that_depend_on_data_are_refused(captured):
    with pytest.raises(UnsupportedError, match="static shapes"):
        lower(captured(lambda x: tf.where(x > 0), np.zeros(3, np.float32))[0])


def test_operations_out_of_reach_are_not_checked():
    text = """
    func.func private @unused(%a: tensor<2xf32>) -> tensor<2xf32> {
      %0 = "vendor.thing"(%a) : (tensor<2xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32>
    }
    func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
      return %a : tensor<2xf32>
    }"""
    np.testing.assert_array_equal(lower(text)(np.ones(2, np.float32))[0], np.ones(2))


@pytest.mark.parametrize("text", ["not a module", "func.func @other() { return }"])
def test_other_text_is_refused(text):
    with pytest.raises(ValueError, match="Expected a"):
        lower(text)


def test_arguments_are_checked(captured):
    low = lower(captured(lambda x: x + 1, np.zeros(3, np.float32))[0])
    with pytest.raises(ValueError, match="Expected 1 arguments"):
        low()
    with pytest.raises(TypeError, match=r"argument 0 with shape \(3,\)"):
        low(np.zeros(4, np.float32))


def test_wide_types_need_to_be_enabled(captured):
    low = lower(captured(lambda x: tf.cast(x, tf.int64), np.zeros(3, np.float32))[0])
    with pytest.raises(ValueError, match="enable_x64"):
        low(np.zeros(3, np.float32))


def test_large_boolean_constants(agrees):
    mask = np.random.default_rng(0).integers(0, 2, (37, 41)).astype(np.bool_)
    agrees(lambda x: tf.where(mask, x, -x), np.ones((37, 41), np.float32))
