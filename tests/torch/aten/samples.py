"""PyTorch's own samples of calls of its functions (OpInfo), as functions of tensors."""

import itertools
import warnings

import torch
from torch.utils import _pytree as pytree

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db


def name_of(info):
    """The name of an entry of PyTorch's table, with its variant."""
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name


BY_NAME = {name_of(info): info for info in op_db}


def calls(info, dtype, count):
    """Up to `count` pairs (function, tensors) for one entry of the table."""
    torch.manual_seed(0)
    for sample in itertools.islice(
        info.sample_inputs("cpu", dtype, requires_grad=info.supports_autograd and dtype.is_floating_point), count
    ):
        leaves, structure = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        places = [number for number, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

        def function(*tensors, leaves=leaves, structure=structure, places=places):
            filled = list(leaves)
            for place, tensor in zip(places, tensors, strict=True):
                filled[place] = tensor
            given, args, kwargs = pytree.tree_unflatten(filled, structure)
            return info.op(given, *args, **kwargs)

        yield function, [leaves[place] for place in places]
