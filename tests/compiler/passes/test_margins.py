"""What pooling drops is not computed, in any layer and gradient, and nothing else changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jax import lax
from jax.extend.core import jaxpr_as_fun

from openipu.compiler.passes import dead, inline, margins, optimise
from openipu.compiler.passes.jaxprs import aval_of, subjaxprs
from tests.compiler.passes.checking import check, compare

_SETTINGS = settings(derandomize=True, deadline=None, max_examples=30)
_NHWC, _NCHW = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")


def noise(*shape):
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape), jnp.float32)


def pooled(x, size=2, stride=2, numbers=_NHWC, padding="VALID"):
    def window(n):
        return tuple(n if dim in "HW" else 1 for dim in numbers[2])

    return lax.reduce_window(x, -jnp.inf, lax.max, window(size), window(stride), padding)


def convolved(x, w, numbers=_NHWC, **given):
    options = {"window_strides": (1, 1), "padding": "VALID", **given}
    return lax.conv_general_dilated(x, w, dimension_numbers=numbers, **options)


def tutorial(x, first, second):
    """The convolutions of the tutorial's network: 28, 26, 13, 11, 5."""
    x = pooled(jax.nn.relu(convolved(x, first)))
    return (pooled(jax.nn.relu(convolved(x, second))) ** 2).sum()


def flat(function, *args):
    """A function as the pass meets it."""
    return dead.run(inline.run(jax.make_jaxpr(function)(*args), lambda eqn: False))


def trimmed(function, *args, tolerance=1e-5):
    """The jaxpr that is left of a function, after a look that it computes the same."""
    before = flat(function, *args)
    after = margins.run(before)
    compare(jaxpr_as_fun(before), jaxpr_as_fun(after), tuple(jax.tree.leaves(args)), tolerance)
    return after


def convolutions(closed):
    """Shapes of the results of all convolutions."""
    found = []
    for eqn in closed.jaxpr.eqns:
        if eqn.primitive.name == "conv_general_dilated":
            found.append(aval_of(eqn.outvars[0]).shape)
        for inner in subjaxprs(eqn.params):
            found += convolutions(inner)
    return found


@st.composite
def networks(draw):
    """Two layers with pooling, and their operands."""
    numbers = draw(st.sampled_from([_NHWC, _NCHW]))
    layers = []
    size, channels = [draw(st.integers(7, 22)) for _ in range(2)], 2
    shape = {"N": 2, "C": channels, "H": size[0], "W": size[1]}
    operands = [noise(*(shape[name] for name in numbers[0]))]
    for _ in range(2):
        kernel, stride, dilation = (draw(st.integers(1, most)) for most in (3, 2, 2))
        # With more padding the gradient's is negative, and XLA computes something else each time.
        low, high = (draw(st.integers(0, (kernel - 1) * dilation)) for _ in range(2))
        size = [(n + low + high - (kernel - 1) * dilation - 1) // stride + 1 for n in size]
        window, step = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        assume(min(size) >= window)
        size = [(n - window) // step + 1 for n in size]
        shape = {"H": kernel, "W": kernel, "I": channels, "O": channels + 1}
        channels += 1
        operands.append(noise(*(shape[name] for name in numbers[1])))
        layers.append(
            (
                dict(window_strides=(stride, stride), rhs_dilation=(dilation, dilation), padding=[(low, high)] * 2),
                (window, step),
            )
        )

    def loss(x, *weights):
        for w, (options, (window, step)) in zip(weights, layers, strict=True):
            x = jax.nn.relu(convolved(x, w, numbers, **options) + 0.1)
            x = pooled(x, window, step, numbers)
        return (x**2).sum()

    return loss, operands


@_SETTINGS
@given(case=networks())
def test_any_network_and_its_gradients(case):
    loss, operands = case
    trimmed(jax.value_and_grad(loss, (0, 1, 2)), *operands, tolerance=2e-5)


@settings(_SETTINGS, max_examples=10)
@given(case=networks())
def test_with_all_other_passes(case):
    loss, operands = case
    check(jax.value_and_grad(loss, (0, 1, 2)), *operands, tolerance=1e-4)


def test_in_the_tutorials_network_every_layer_is_smaller():
    x, first, second = noise(4, 28, 28, 1), noise(3, 3, 1, 8), noise(3, 3, 8, 6)
    made = trimmed(jax.value_and_grad(tutorial, (1, 2)), x, first, second)
    forward, gradients = [(4, 24, 24, 8), (4, 10, 10, 6)], [(4, 12, 12, 8)]
    assert sorted(shape for shape in convolutions(made) if shape[0] == 4) == sorted([*forward, *gradients])
    assert len(convolutions(made)) == 5


def test_loops_and_branches_too():
    x, w = noise(3, 2, 11, 11, 4), noise(3, 3, 4, 4)

    def step(total, x):
        return total + lax.cond(total < 0, lambda: 0.0, lambda: pooled(convolved(x, w)).sum()), None

    assert convolutions(trimmed(lambda x: lax.scan(step, 0.0, x)[0], x)) == [(2, 8, 8, 4)]


def test_what_somebody_else_reads_is_computed():
    x, w = noise(2, 11, 11, 4), noise(3, 3, 4, 4)

    def both(x, w):
        y = convolved(x, w)
        return pooled(y).sum(), y

    def mean(x, w):
        y = convolved(x, w)
        return pooled(y - y.mean((0, 1, 2))).sum()

    for function in (both, mean):
        assert convolutions(trimmed(function, x, w)) == [(2, 9, 9, 4)]


def test_numbers_drawn_are_the_same():
    x, w = noise(2, 11, 11, 4), noise(3, 3, 4, 4)

    def dropped(x, w):
        y = convolved(x, w)
        return pooled(jnp.where(jax.random.uniform(jax.random.key(1), y.shape) > 0.5, y, 0.0))

    assert convolutions(trimmed(dropped, x, w)) == [(2, 8, 8, 4)]


@pytest.mark.parametrize("padding", ["VALID", "SAME"])
def test_where_pooling_drops_nothing_the_program_stays(padding):
    x, w = noise(2, 12, 12, 4), noise(3, 3, 4, 4)
    before = flat(jax.grad(lambda w: pooled(convolved(x, w), padding=padding).sum()), w)
    assert margins.run(before) is before


def test_strides_of_convolutions_alone_change_nothing():
    x, first, second = noise(2, 12, 12, 4), noise(3, 3, 4, 4), noise(1, 1, 4, 4)

    def loss(x, first, second):
        y = convolved(x, first, padding="SAME")
        strided = convolved(y, first, window_strides=(2, 2), padding="SAME")
        return (strided + convolved(y, second, window_strides=(2, 2))).sum()

    before = flat(jax.grad(loss, (0, 1, 2)), x, first, second)
    assert margins.run(before) is before


def test_zeros_that_meet_other_values_are_there():
    x, w = noise(2, 11, 11, 4), noise(3, 3, 4, 4)

    def slope_and_more(x, w):
        slope = jax.grad(lambda y: pooled(y).sum())(convolved(x, w))
        return convolved(slope, w), slope + 1, slope.mean((1, 2)), slope

    trimmed(slope_and_more, x, w)


def test_what_is_not_a_number_in_a_dropped_row_reaches_nothing():
    x, w = noise(1, 11, 11, 4).at[:, 10].set(jnp.nan), noise(3, 3, 4, 4)
    made = optimise(jax.make_jaxpr(jax.value_and_grad(lambda w: pooled(convolved(x, w)).sum()))(w))
    assert all(np.isfinite(value).all() for value in jaxpr_as_fun(made)(w))
