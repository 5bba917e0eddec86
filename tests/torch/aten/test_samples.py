"""Every function in PyTorch's own table that is not left out, forward and gradient, like torch."""

import warnings

import pytest
import torch

from tests.torch.aten.compare import assert_like_torch
from tests.torch.aten.left_out import LEFT_OUT, LEFT_OUT_FAMILIES, reason
from tests.torch.aten.samples import BY_NAME, calls

# torch's gradient formula loses digits here.
_LOOSE = {"logcumsumexp": 1e-2, "norm.inf": 1e-3}

COMPARED = [name for name, info in BY_NAME.items() if torch.float32 in info.dtypes and reason(name) is None]
ON_INTEGERS = ["bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor"]
ON_INTEGERS += ["__rand__", "gcd", "lcm", "tril_indices", "triu_indices", "unravel_index"]
ON_INTEGERS += ["abs", "add", "sub", "mul", "div.floor_rounding", "div.trunc_rounding", "div.no_rounding_mode", "pow"]
ON_INTEGERS += ["sum", "mean.dtype", "prod", "cumsum", "amax", "argmax", "sort", "gather", "scatter", "where"]
ON_INTEGERS += ["remainder", "fmod", "floor_divide", "clamp", "maximum", "eq", "lt", "any", "all", "index_put", "sign"]


@pytest.mark.parametrize("name", COMPARED)
def test_like_torch(name):
    info = BY_NAME[name]
    rtol = _LOOSE.get(name, 2e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for function, tensors in calls(info, torch.float32, 1):
            assert_like_torch(function, *tensors, gradient=info.supports_autograd, rtol=rtol, atol=rtol / 10)


@pytest.mark.parametrize("name", [name for name in ON_INTEGERS if name in BY_NAME])
def test_like_torch_on_integers(name):
    info = BY_NAME[name]
    for dtype in (torch.int64, torch.int32) if torch.int32 in info.dtypes else (torch.int64,):
        for function, tensors in calls(info, dtype, 2):
            assert_like_torch(function, *tensors, gradient=False)


def test_the_list_of_what_is_left_out_is_up_to_date():
    assert len(COMPARED) > 420
    known = set(BY_NAME)
    assert [start for start in LEFT_OUT_FAMILIES if not any(name.startswith(start) for name in known)] == []
    assert sorted(set(LEFT_OUT) - known) == []
