"""PyTorch has what openipu uses of it beyond its public API."""

from openipu import frameworks
from openipu.torch import boundary


def test_this_torch_has_all_that_the_boundary_names():
    assert frameworks.missing(boundary.TABLE) == []
