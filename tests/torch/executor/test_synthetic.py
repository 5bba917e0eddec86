"""Which synthetic data the options ask for."""

import pytest

import poptorch
from openipu.runtime import REAL, Synthetic
from openipu.torch.executor import synthetic


@pytest.mark.parametrize(("number", "kind"), [(1, 0.0), (2, "normal"), (3, "uniform")])
def test_the_numbers_of_the_backend(number, kind):
    options = poptorch.Options()
    options._Popart.set("syntheticDataMode", number)
    assert synthetic.of_options(options) == Synthetic(kind, feeds=True, results=True)


def test_another_number_is_not_taken_for_real_data():
    options = poptorch.Options()
    assert synthetic.of_options(options) is REAL
    options._Popart.set("syntheticDataMode", 7)
    with pytest.raises(ValueError, match=r"0 \(off\), 1 \(zeros\), 2 .* Received: 7"):
        synthetic.of_options(options)
