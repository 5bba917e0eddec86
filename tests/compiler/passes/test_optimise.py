"""The passes as a whole: what they leave alone, what they look into, and that no transposes appear between kernels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import jaxpr_as_fun

from openipu.compiler.passes import optimise

from .checking import check, compare, primitives


def _normal(*shape):
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape), jnp.float32)


def _conv(x, w):
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _layer(x, w):
    return jnp.tanh(_conv(x, w))


_X, _W = _normal(8, 4, 4, 2), _normal(3, 3, 2, 2)


def test_other_platforms_keep_their_kernels():
    step = jax.make_jaxpr(_layer)(_X, _W)
    assert optimise(step, platform="gpu") is step


@pytest.mark.parametrize(
    "nested",
    [
        lambda x, w: lax.scan(lambda c, _: (_layer(c, w), c.sum()), x, None, length=3),
        lambda x, w: lax.fori_loop(0, 3, lambda _, c: _layer(c, w), x),
        lambda x, w: lax.while_loop(lambda c: _layer(c, w).sum() > 1e9, lambda c: _layer(c, w), x),
        lambda x, w: lax.cond(x.sum() > 0, lambda: _layer(x, w), lambda: x),
        lambda x, w: jax.jit(_layer)(x, w) + jax.jit(_layer)(x + 1, w),
        lambda x, w: jax.checkpoint(_layer)(x, w),
        lambda x, w: jax.grad(lambda w: jax.checkpoint(_layer)(x, w).sum())(w),
        lambda x, w: jax.nn.relu(_layer(x, w)),
        lambda x, w: lax.map(lambda row: _layer(row[None], w)[0], x),
    ],
    ids=["scan", "fori", "while", "cond", "jit", "remat", "remat-grad", "custom-jvp", "map"],
)
def test_convolutions_are_found_wherever_they_are(nested):
    assert "conv_general_dilated" not in check(nested, _X, _W, tolerance=1e-4)


def test_a_custom_gradient_is_opened():
    @jax.custom_vjp
    def layer(x, w):
        return _layer(x, w)

    layer.defvjp(lambda x, w: (layer(x, w), (x, w)), lambda r, g: (g, r[1]))
    assert "conv_general_dilated" not in check(layer, _X, _W)


def _network(flatten_first):
    """Convolutions with all that stands between them in practice, and the gradients."""

    def loss(params, x):
        w1, b1, w2, scale, w3 = params
        h = jax.nn.relu(_conv(x, w1) + b1)
        h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        h = _conv(h, w2)
        g = h.reshape(*h.shape[:3], 2, -1)
        g = (g - g.mean((1, 2, 4), keepdims=True)) * lax.rsqrt(g.var((1, 2, 4), keepdims=True) + 1e-3)
        h = jnp.pad(jax.nn.relu(g.reshape(h.shape) * scale), ((0, 0), (1, 0), (0, 1), (0, 0)))
        h = jnp.concatenate([h, h[:, ::-1]], -1)[:, 1:, ::2]
        h = h.reshape(h.shape[0], -1) if flatten_first else h.transpose(0, 3, 1, 2).reshape(h.shape[0], -1)
        return -jax.nn.log_softmax(h @ w3)[:, 0].mean()

    return jax.value_and_grad(loss)


def _parameters():
    return [_normal(3, 3, 1, 4), _normal(4), _normal(3, 3, 4, 4), _normal(4), _normal(96, 3) * 0.1]


@pytest.mark.parametrize("flatten_first", [True, False])
@pytest.mark.parametrize("batch", [2, 8])
def test_a_network_with_its_gradients(flatten_first, batch):
    left = check(_network(flatten_first), _parameters(), _normal(batch, 8, 8, 1), tolerance=1e-4)
    assert not {"conv_general_dilated", "reduce_window_max", "select_and_scatter_add"} & left


def test_between_convolutions_only_weights_are_transposed():
    def step(x, w, b):
        h = jax.nn.relu(_conv(x, w) + b)
        h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return (_conv(h, w).sum((0, 1, 2)), h.mean())

    x, w = _normal(16, 12, 12, 8), _normal(3, 3, 8, 8)
    done = optimise(jax.make_jaxpr(jax.grad(lambda *a: step(*a)[0].sum(), argnums=1))(x, w, _normal(8)))
    transposed = [eqn.invars[0].aval.size for eqn in done.jaxpr.eqns if eqn.primitive.name == "transpose"]
    # The input once, and nothing else of its size: the kernels' order is kept in between.
    assert len([size for size in transposed if size > w.size]) <= 1


def test_replicas_and_steps_around_an_optimised_step():
    network = _network(True)

    def step(params, x):
        loss, grads = network(params, x)
        return [p - 0.1 * g for p, g in zip(params, grads, strict=True)], loss

    params, x = _parameters(), _normal(2, 3, 8, 8, 8, 1)
    flat = jaxpr_as_fun(optimise(jax.make_jaxpr(step)(params, x[0, 0])))
    shape = jax.tree.structure((params, 0.0))

    def run(step):
        return lambda params, x: jax.vmap(lambda x: lax.scan(step, params, x))(x)

    compare(run(step), run(lambda p, x: jax.tree.unflatten(shape, flat(*p, x))), (params, x), tolerance=1e-3)


def test_replicas_make_no_scatter():
    step = jax.make_jaxpr(jax.grad(lambda x, w: (_layer(_layer(x, w), w) ** 2).sum(), argnums=1))
    optimised = jaxpr_as_fun(optimise(step(_normal(8, 9, 9, 4), _normal(3, 3, 4, 4))))
    lanes = jax.make_jaxpr(jax.vmap(jax.vmap(optimised)))(_normal(2, 2, 8, 9, 9, 4), _normal(2, 2, 3, 3, 4, 4))
    assert not [name for name in primitives(lanes) if "scatter" in name]


def test_sums_over_replicas_and_callbacks_survive():
    seen = []

    def step(x, w):
        y = _layer(x, w)
        jax.debug.callback(lambda v: seen.append(float(v)), y.sum())
        return lax.psum(y, "replica")

    before = jax.make_jaxpr(step, axis_env=[("replica", 2)])(_X, _W)
    after = optimise(before)
    assert "psum" in " ".join(primitives(after))
    run = jax.vmap(lambda x: jaxpr_as_fun(after)(x, _W)[0], axis_name="replica")
    want = jax.vmap(lambda x: lax.psum(_layer(x, _W), "replica"), axis_name="replica")
    x = jnp.stack([_X, _X * 2])
    np.testing.assert_allclose(run(x), want(x), rtol=1e-4, atol=1e-5)
    jax.effects_barrier()
    assert len(seen) == 2


def test_sixty_four_bit_values_stay_so():
    with jax.enable_x64(True):
        x, w = jnp.asarray(_X, jnp.float64), jnp.asarray(_W, jnp.float64)
        left = check(lambda x, w: (_layer(x, w), jnp.argmax(_layer(x, w), -1), jnp.int64(3) * 2), x, w, tolerance=1e-12)
        assert "conv_general_dilated" not in left
        before = jax.make_jaxpr(_layer)(x, w)
    assert optimise(before).out_avals[0].dtype == jnp.float64


def test_what_nobody_reads_is_dropped():
    def step(x, w):
        _conv(x, w)
        return x + 1

    assert [eqn.primitive.name for eqn in optimise(jax.make_jaxpr(step)(_X, _W)).jaxpr.eqns] == ["add"]


def test_a_dense_layer_after_a_convolution_multiplies_matrices_as_they_are_stored():
    def layers(x, w, dense):
        hidden = lax.conv_general_dilated(x, w, (1, 1), "VALID").reshape(len(x), -1)
        return jnp.tanh(lax.dot_general(hidden, dense, (((1,), (1,)), ((), ()))))

    arguments = _normal(8, 2, 4, 4), _normal(3, 2, 3, 3), _normal(5, 12)
    check(layers, *arguments)
    after = optimise(jax.make_jaxpr(layers)(*arguments))
    products = [eqn for eqn in after.jaxpr.eqns if eqn.primitive.name == "dot_general"]
    # Rows of the weights times columns of the batch, which is innermost.
    assert products[-1].params["dimension_numbers"] == (((1,), (0,)), ((), ()))
    assert products[-1].outvars[0].aval.shape == (5, 8)
