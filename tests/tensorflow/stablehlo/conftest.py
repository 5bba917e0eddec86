"""Comparison of lowered TensorFlow functions with TensorFlow itself."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

from openipu.tensorflow.stablehlo import lower

# Small programs run once: compiling them well would take most of the time of these tests.
FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}

# Half-precision types differ by a few units in the last place, because sums are taken in another order.
TOLERANCES = {
    "float64": 1e-9,
    "float32": 2e-5,
    "complex64": 2e-5,
    "complex128": 1e-9,
    "float16": 5e-3,
    "bfloat16": 4e-2,
}


def capture(function, *arrays):
    """The StableHLO text of a TensorFlow function for arguments like `arrays`, and its captured variables."""
    compiled = tf.function(function, jit_compile=True, autograph=False)
    specs = [tf.TensorSpec(array.shape, array.dtype) for array in arrays]
    concrete = compiled.get_concrete_function(*specs)
    by_handle = {id(variable.handle): variable for variable in concrete.variables}
    captured = [
        by_handle[id(handle)].numpy() if id(handle) in by_handle else handle.numpy()
        for handle in concrete.captured_inputs
    ]
    return compiled.experimental_get_compiler_ir(*specs)(stage="stablehlo"), captured


def evaluate(low, *arrays, key=None):
    """Run a lowered function as one compiled program."""
    with jax.enable_x64(True):
        arrays = [jnp.asarray(array) for array in arrays]
        if key is None:
            return [np.asarray(x) for x in jax.jit(low, compiler_options=FAST)(*arrays)]
        return [np.asarray(x) for x in jax.jit(lambda k, *xs: low(*xs, key=k), compiler_options=FAST)(key, *arrays)]


def assert_same(received, expected, tolerance=None, what=""):
    """Same shape and dtype; equal for whole numbers, close for the others."""
    expected = np.asarray(expected)
    assert received.dtype == expected.dtype, what
    assert received.shape == expected.shape, what
    limit = TOLERANCES.get(expected.dtype.name)
    if limit is None:
        np.testing.assert_array_equal(received, expected, err_msg=what)
        return
    limit = limit if tolerance is None else tolerance
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    scale = np.max(np.abs(np.nan_to_num(expected.astype(wide), posinf=0, neginf=0)), initial=1.0)
    np.testing.assert_allclose(
        received.astype(wide), expected.astype(wide), rtol=limit, atol=limit * scale, err_msg=what
    )


def with_gradient(function, variables=()):
    """The function, followed by the gradient of a weighted sum of its floating outputs."""

    def both(*args):
        wanted = [a for a in args if a.dtype.is_floating or a.dtype.is_complex]
        with tf.GradientTape() as tape:
            tape.watch(wanted)
            outputs = tf.nest.flatten(function(*args))
            loss = tf.constant(0.0)
            for output in outputs:
                if output.dtype.is_floating:
                    count = output.shape.num_elements()
                    weights = tf.reshape(tf.sin(tf.range(count, dtype=tf.float32)) + 1.5, output.shape)
                    loss += tf.reduce_sum(tf.cast(output, tf.float32) * weights)
        gradients = tape.gradient(loss, [*wanted, *variables], unconnected_gradients="zero")
        return [*outputs, *(tf.convert_to_tensor(g) for g in gradients)]

    return both


@pytest.fixture(scope="session")
def agrees():
    """A function that fails unless the lowering of a TensorFlow function computes what TensorFlow does."""

    def check(function, *arrays, gradient=True, variables=(), tolerance=None, compiled=False):
        arrays = [np.asarray(array) for array in arrays]
        whole = with_gradient(function, variables) if gradient else (lambda *xs: tf.nest.flatten(function(*xs)))
        text, captured = capture(whole, *arrays)
        # Eager TensorFlow has kernels of its own; XLA's are the reference where the two are known to differ.
        reference = tf.function(whole, jit_compile=True, autograph=False) if compiled else whole
        expected = reference(*map(tf.constant, arrays))
        low = lower(text)
        received = evaluate(low, *arrays, *captured)
        kinds = [(x.shape, x.dtype) for x in received]
        assert [(x.shape, x.dtype) for x in low.outputs] == kinds
        for i, value in enumerate(expected):
            assert_same(received[i], value.numpy(), tolerance, f"output {i}")
        return low

    return check


@pytest.fixture(scope="session")
def captured():
    """`capture` for tests that look at the lowering itself."""
    return capture
