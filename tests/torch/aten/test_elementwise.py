"""Promotion of dtypes, and gradients at the corners of functions, as torch has them."""

import itertools

import hypothesis
import pytest
import torch
import torch.nn.functional as F
from hypothesis import strategies as st

from tests.torch.aten.compare import assert_like_torch, lowered

DTYPES = [torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float32]
SCALARS = [True, 2, 1.5]
settings = hypothesis.settings(derandomize=True, max_examples=12, deadline=None)


def promoted(function, *tensors):
    import jax

    with jax.enable_x64(True):
        run = lowered(function, *tensors)
        (result,) = jax.eval_shape(lambda: run([t.float().numpy().astype(_name(t)) for t in tensors]))
    return str(result.dtype)


def _name(tensor):
    import jax.numpy as jnp

    name = str(tensor.dtype).removeprefix("torch.")
    return getattr(jnp, "bool_" if name == "bool" else name)


@pytest.mark.parametrize("function", [torch.add, torch.true_divide, torch.eq])
def test_promotion_of_tensors(function):
    for a, b in itertools.product(DTYPES, DTYPES):
        for shape in [(2,), ()]:
            x, y = torch.ones(2, dtype=a), torch.ones(shape, dtype=b)
            expected = str(function(x, y).dtype).removeprefix("torch.")
            assert promoted(function, x, y) == expected, (a, b, shape)


@pytest.mark.parametrize("scalar", SCALARS)
def test_promotion_of_scalars(scalar):
    for dtype, function in itertools.product(DTYPES, [torch.add, torch.mul, torch.true_divide, torch.gt]):
        x = torch.ones(2, dtype=dtype)
        expected = str(function(x, scalar).dtype).removeprefix("torch.")
        assert promoted(lambda x: function(x, scalar), x) == expected, (dtype, scalar)


@settings
@hypothesis.given(
    st.sampled_from([torch.floor_divide, torch.remainder, torch.fmod, torch.true_divide]),
    st.sampled_from([torch.int32, torch.int64, torch.float32]),
    st.lists(st.integers(-9, 9), min_size=3, max_size=3),
    st.lists(st.integers(-4, 4).filter(bool), min_size=3, max_size=3),
)
def test_division_of_signs(function, dtype, a, b):
    assert_like_torch(function, torch.tensor(a, dtype=dtype), torch.tensor(b, dtype=dtype), gradient=False)


CORNERS = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": lambda x: F.hardtanh(x, -1, 1),
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp_min": lambda x: x.clamp_min(0),
    "abs": torch.abs,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "selu": F.selu,
    "celu": F.celu,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardshrink": lambda x: F.hardshrink(x, 1.0),
    "softshrink": lambda x: F.softshrink(x, 1.0),
    "threshold": lambda x: F.threshold(x, 1.0, 5.0),
    "softplus": lambda x: F.softplus(x * 30),
    "sign": torch.sign,
    "square root of a norm": lambda x: torch.linalg.vector_norm(x * 0) + x,
    "norm": lambda x: (x * torch.tensor([0.0] * 9)).norm() + x,
    "deviation": lambda x: (x * 0 + 1).std() + x,
    "maximum": lambda x: torch.maximum(x, -x),
    "minimum": lambda x: torch.minimum(x, x.flip(0)),
    "amax": lambda x: x.abs().amax(),
    "max": lambda x: x.abs().max(),
    "max of a dimension": lambda x: x.abs().reshape(3, 3).max(1).values,
    "median": lambda x: x.abs().median(),
    "powers": lambda x: x**2 + x**3 + x**0 + x.abs() ** 1.0,
    "power of a tensor": lambda x: (x * x) ** torch.arange(9.0),
    "product": lambda x: x.prod() + x.cumprod(0),
    "xlogy": lambda x: torch.xlogy(x.abs(), x.abs()[:1] + 1),
    "cross entropy of certainty": lambda x: F.binary_cross_entropy((x > 0).float() + 0 * x, (x > 1).float()),
    "distance": lambda x: torch.cdist(x.reshape(3, 3), x.reshape(3, 3)),
    "normalize": lambda x: F.normalize(x.reshape(3, 3) * torch.tensor([[0.0], [1], [2]]), dim=1),
    "smooth l1": lambda x: F.smooth_l1_loss(x, torch.zeros(9)),
    "log softmax": lambda x: F.log_softmax(x * 100, 0),
}


@pytest.mark.parametrize("name", CORNERS)
def test_gradients_at_corners(name):
    assert_like_torch(CORNERS[name], torch.tensor([-6.0, -3, -1, -0.5, 0, 0.5, 1, 3, 6]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("function", [F.gelu, F.silu, F.softplus, F.mish, torch.sigmoid, torch.tanh, F.elu, torch.exp])
def test_half_precision(function, dtype):
    tolerance = 2e-3 if dtype == torch.float16 else 2e-2
    assert_like_torch(function, torch.linspace(-4, 4, 17).to(dtype), rtol=tolerance, atol=tolerance)


def test_conversions():
    x = torch.tensor([-1.7, 0.0, 0.2, 2.9])
    for dtype in (torch.bool, torch.int32, torch.int64, torch.float16):
        assert_like_torch(lambda x: x.to(dtype), x, gradient=False)
    assert_like_torch(lambda x: x.to(torch.uint8), torch.tensor([-1, 0, 255, 300]), gradient=False)
