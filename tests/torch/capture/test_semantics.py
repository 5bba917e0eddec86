"""What `forward` sees while it is captured: devices, constants with values, and refusals in our words."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import openipu.errors
import poptorch
from openipu.torch.exceptions import as_poptorch

OUTSIDE = torch.tensor([1.0, 2.0])
X = torch.tensor([1.0, 2.0])


class Plain(nn.Module):
    """A function as a module, with a tensor that is neither parameter nor buffer."""

    def __init__(self, function):
        super().__init__()
        self.i, self.w, self.function = torch.tensor([1.0]), nn.Parameter(torch.ones(2)), function

    def forward(self, x):
        return self.function(self, x)


def run(function, x=X):
    return poptorch.inferenceModel(Plain(function))(x)


def test_a_counter_that_is_a_plain_tensor_never_advances():
    def count(self, x):
        self.i += 1
        self.i[0] = self.i[0] * 2
        return x + self.i

    model = Plain(count)
    executor = poptorch.inferenceModel(model)
    assert executor(X).tolist() == executor(X).tolist() == [5.0, 6.0]
    assert model.i.item() == 1


def test_values_of_constants_are_known():
    def forward(self, x):
        if self.i > 0:
            x = x * OUTSIDE[1].item()
        return x + int(self.i) + self.i.numpy()[0] + float(OUTSIDE.sum())

    assert run(forward).tolist() == [7.0, 9.0]


def test_random_numbers_for_a_constant_are_drawn_at_every_run():
    model = Plain(lambda self, x: x * F.dropout(self.i.expand(50), training=True).sum())
    executor = poptorch.inferenceModel(model)
    assert len({executor(X)[0].item() for _ in range(5)}) > 1


def test_constants_are_returned_as_they_are_with_a_warning():
    with pytest.warns(UserWarning, match="Output expected to be on the IPU but is on cpu"):
        x, own, other = run(lambda self, x: (x, self.i, OUTSIDE))
    assert (x.tolist(), own.tolist(), other.tolist()) == ([1.0, 2.0], [1.0], [1.0, 2.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        number, numbers = run(lambda self, x: (torch.tensor(5), torch.tensor([1, 2])))
    assert (number.dtype, number.item(), numbers.tolist()) == (torch.int32, 5, [1, 2])


def test_traced_tensors_are_on_the_ipu():
    def forward(self, x):
        assert x.device.type == self.w.device.type == "ipu" and self.i.device.type == "cpu"
        assert (x * 2).device == torch.zeros(2, device=x.device).device == self.i.to(x.device).device
        with torch.autocast(device_type=x.device.type, enabled=False):
            made = torch.tensor([1.0, 2.0], device=x.device) + x.new_zeros(2) + self.i.to(x.device)
        return x.to(x.device) + made

    assert run(forward).tolist() == [3.0, 5.0]
    assert Plain(lambda self, x: x.device.type)(X) == "cpu"


class Named(torch.Tensor):
    """A class of the user's own."""


def test_subclasses_of_tensors_compute_like_tensors():
    assert run(lambda self, x: x.as_subclass(Named) * 2, X.as_subclass(Named)).tolist() == [2.0, 4.0]


class Modes(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return self.w * x * (1 if self.training else 2)


def test_the_module_of_an_inference_executor_decides_how_it_is_compiled():
    model = Modes()
    training = poptorch.trainingModel(model)
    inference = poptorch.inferenceModel(training)
    inference.model.eval()
    assert inference(X).tolist() == [2.0, 4.0]
    assert model.training and poptorch.inferenceModel(model)(X).tolist() == [1.0, 2.0]


def test_bincount_has_as_many_places_as_minlength():
    values, weights = torch.tensor([0, 3, 1, 3]), torch.tensor([0.5, 1.0, 2.0, 4.0])
    plain, weighted = run(lambda self, x: (torch.bincount(x, minlength=5), x.bincount(weights, 4)), values)
    assert plain.tolist() == values.bincount(minlength=5).tolist()
    torch.testing.assert_close(weighted, values.bincount(weights, 4))


@pytest.mark.parametrize(
    "function, text",
    [
        (lambda self, x: x * x.sum().item(), "aten::item is only supported in eager mode"),
        (lambda self, x: torch.from_numpy(x.numpy()), "cannot become a NumPy array in forward"),
        (lambda self, x: F.one_hot(x.long()), "OneHot num classes must be specified and must be constant"),
        (lambda self, x: torch.bincount(x.long()), "torch.bincount needs minlength"),
        (lambda self, x: x.cpu(), "Illegal move to CPU"),
        (lambda self, x: x.nonzero(), "aten::nonzero"),
    ],
)
def test_what_needs_values_of_the_device_is_a_poptorch_error(function, text):
    with pytest.raises(poptorch.Error, match=text):
        run(function)


def test_errors_of_the_program_stay_what_they_are():
    def forward(self, x):
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        run(forward)


def test_what_is_unsupported_is_an_error_for_programs_of_poptorch_and_of_openipu():
    with pytest.raises(poptorch.Error) as caught:
        run(lambda self, x: x.nonzero())
    assert isinstance(caught.value, openipu.errors.UnsupportedError)
    # So is what the core refuses, which knows nothing of poptorch.
    with pytest.raises(poptorch.Error, match="three legs") as caught, as_poptorch():
        raise openipu.errors.UnsupportedError("three legs")
    assert isinstance(caught.value, openipu.errors.UnsupportedError)
