"""Random numbers: dropout, distributions and permutations, drawn from the program's key."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch.fx import Node

from openipu.torch.aten.dtypes import Scalar
from openipu.torch.aten.registry import Context, op

aten = torch.ops.aten


def _drops(node: Node) -> bool:
    rate, train = node.args[1:3]
    return bool(train) and rate not in (0, 1)


@op(aten.native_dropout, random=_drops)
def _native_dropout(context: Context, x: jax.Array, p: float, train: bool | None) -> tuple[jax.Array, jax.Array]:
    if not train or p == 0:
        return x, jnp.ones(x.shape, bool)
    if p == 1:
        return x * 0, jnp.zeros(x.shape, bool)
    kept = jax.random.bernoulli(context.drawing_key, 1 - p, x.shape)
    return jnp.where(kept, x / jnp.asarray(1 - p, x.dtype), jnp.zeros_like(x)), kept


@op(aten.bernoulli.default, random=True)
def _bernoulli(context: Context, probability: jax.Array, **_: Any) -> jax.Array:
    return jax.random.bernoulli(context.drawing_key, probability, context.shape)


@op(aten.bernoulli.p, random=True)
def _bernoulli_p(context: Context, like: jax.Array, p: float = 0.5, **_: Any) -> jax.Array:
    return jax.random.bernoulli(context.drawing_key, p, context.shape)


@op(aten.bernoulli.Tensor, random=True)
def _bernoulli_tensor(context: Context, like: jax.Array, p: jax.Array, **_: Any) -> jax.Array:
    return jax.random.bernoulli(context.drawing_key, p, context.shape)


@op(aten.rand, aten.rand_like, random=True)
def _rand(context: Context, *_: Any, **__: Any) -> jax.Array:
    return jax.random.uniform(context.drawing_key, context.shape, context.dtype)


@op(aten.randn, aten.randn_like, random=True)
def _randn(context: Context, *_: Any, **__: Any) -> jax.Array:
    return jax.random.normal(context.drawing_key, context.shape, context.dtype)


def _integers(context: Context, low: int, high: int) -> jax.Array:
    # 32-bit bounds are enough for what a program can mean, and much cheaper to draw.
    return jax.random.randint(context.drawing_key, context.shape, low, high)


@op(aten.randint.default, random=True)
def _randint(context: Context, high: int, size: Sequence[int], **_: Any) -> jax.Array:
    return _integers(context, 0, high)


@op(aten.randint.low, random=True)
def _randint_low(context: Context, low: int, high: int, size: Sequence[int], **_: Any) -> jax.Array:
    return _integers(context, low, high)


@op(aten.randint_like.default, random=True)
def _randint_like(context: Context, x: jax.Array, high: int, **_: Any) -> jax.Array:
    return _integers(context, 0, high)


@op(aten.randint_like.low_dtype, random=True)
def _randint_like_low(context: Context, x: jax.Array, low: int, high: int, **_: Any) -> jax.Array:
    return _integers(context, low, high)


@op(aten.random.default, random=True)
def _random(context: Context, x: jax.Array, **_: Any) -> jax.Array:
    digits = {"float16": 11, "bfloat16": 8, "float32": 24}.get(context.dtype.name, 7 if x.dtype.itemsize == 1 else 31)
    return _integers(context, 0, 2**digits if digits < 31 else 2**31 - 1)


@op(aten.random.to, random=True)
def _random_to(context: Context, x: jax.Array, high: int, **_: Any) -> jax.Array:
    return _integers(context, 0, high)


@op(getattr(aten.random, "from"), random=True)
def _random_from(context: Context, x: jax.Array, low: int, high: int, **_: Any) -> jax.Array:
    return _integers(context, low, high)


@op(aten.randperm, random=True)
def _randperm(context: Context, n: int, **_: Any) -> jax.Array:
    return jax.random.permutation(context.drawing_key, n)


@op(aten.normal, aten.normal_functional, random=True)
def _normal(context: Context, mean: Any, std: Any = 1.0, *rest: Any, **_: Any) -> jax.Array:
    target = str(context.node.target)
    if "normal_functional" in target:
        # (tensor to overwrite, mean, standard deviation)
        mean, std = (std, rest[0]) if rest else (std if std != 1.0 else 0.0, 1.0)
    return mean + std * jax.random.normal(context.drawing_key, context.shape, context.dtype)


@op(aten.uniform, random=True)
def _uniform(context: Context, x: jax.Array, low: Scalar = 0.0, high: Scalar = 1.0, **_: Any) -> jax.Array:
    return jax.random.uniform(context.drawing_key, context.shape, context.dtype, low, high)


def _from_standard(draw: Callable) -> Callable:
    def run(context: Context, x: jax.Array, *args: Any, **_: Any) -> jax.Array:
        uniform = jax.random.uniform(context.drawing_key, context.shape, jnp.float32, 1e-7, 1.0)
        return draw(uniform, *args)

    return run


op(aten.exponential, random=True)(_from_standard(lambda u, rate=1.0: -jnp.log(u) / rate))
op(aten.geometric, random=True)(_from_standard(lambda u, p: jnp.ceil(jnp.log(u) / jnp.log1p(-p))))
op(aten.cauchy, random=True)(_from_standard(lambda u, median=0.0, s=1.0: median + s * jnp.tan(jnp.pi * (u - 0.5))))


@op(aten.log_normal, random=True)
def _log_normal(context: Context, x: jax.Array, mean: float = 1.0, std: float = 2.0, **_: Any) -> jax.Array:
    return jnp.exp(mean + std * jax.random.normal(context.drawing_key, context.shape, context.dtype))


@op(aten.poisson, random=True)
def _poisson(context: Context, rate: jax.Array, *_: Any) -> jax.Array:
    return jax.random.poisson(context.drawing_key, rate, context.shape)


@op(aten.multinomial, random=True)
def _multinomial(context: Context, weights: jax.Array, samples: int, replacement: bool = False, **_: Any) -> jax.Array:
    scores = jnp.log(weights)
    if replacement:
        shape = context.shape
        draws = jax.random.categorical(context.drawing_key, scores, axis=-1, shape=(samples, *weights.shape[:-1]))
        return jnp.moveaxis(draws, 0, -1).reshape(shape)
    # The largest of scores with Gumbel noise are a sample without replacement.
    noisy = scores + jax.random.gumbel(context.drawing_key, scores.shape, scores.dtype)
    return jax.lax.top_k(noisy, samples)[1]


@op(aten.rrelu_with_noise_functional, random=True)
def _rrelu(
    context: Context,
    x: jax.Array,
    noise: jax.Array,
    lower: Scalar = 0.125,
    upper: Scalar = 1 / 3,
    training: bool = False,
    *_: Any,
    **__: Any,
) -> tuple[jax.Array, jax.Array]:
    if not training:
        return jnp.where(x > 0, x, x * jnp.asarray((lower + upper) / 2, x.dtype)), noise
    slope = jax.random.uniform(context.drawing_key, x.shape, x.dtype, lower, upper)
    slope = jnp.where(x > 0, jnp.ones_like(slope), slope)
    return x * slope, slope
