"""Transfers between host and device: made-up data, overlap with computation, floating-point exceptions on the way."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import poptorch
from openipu.errors import InstanceError, UnsupportedError

OVERLAP = poptorch.OverlapMode.OverlapDeviceIterationLoop


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.w = function, nn.Parameter(torch.ones(2))

    def forward(self, *args):
        return self.function(self, *args)


def infer(function, *args, options=None):
    return poptorch.inferenceModel(Calls(function), options)(*args)


def test_synthetic_data_transfers_nothing_and_measures_nothing():
    options = poptorch.Options().deviceIterations(2).enableSyntheticData(True)

    def step(self, x, target):
        self.seen = x
        return x * self.w, F.mse_loss(x * self.w, target)

    model = Calls(step)
    executor = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.1))
    nothing = torch.zeros(4, 2)
    out, loss = executor(nothing, nothing)
    assert out.shape == (2, 2) and loss.shape == ()
    assert not out.any() and not loss.any()
    # The weights learn from what the device made up: of zeros they would learn nothing.
    assert not torch.equal(model.w.detach(), torch.ones(2))
    assert all(value == [[]] for value in executor.getPerfCounters().values())
    assert executor.getLatency() == (0.0, 0.0, 0.0)


def test_synthetic_labels_are_valid():
    options = poptorch.Options().enableSyntheticData(1)
    embedding = nn.Embedding(3, 2)
    assert poptorch.inferenceModel(embedding, options)(torch.tensor([2, 1])).shape == (2, 2)


def ready(mode=poptorch.OutputMode.All):
    options = poptorch.Options().outputMode(mode).setExecutionStrategy(poptorch.ShardedExecution())
    options.TensorLocations.numIOTiles(32)
    return options


def test_overlapped_transfers_change_nothing():
    def both(self, x):
        return poptorch.set_overlap_for_output(poptorch.set_overlap_for_input(x, OVERLAP) * 2, OVERLAP)

    x = torch.arange(4.0)
    torch.testing.assert_close(infer(both, x, options=ready()), 2 * x)
    torch.testing.assert_close(both(None, x), 2 * x)


def test_overlapped_transfers_need_tiles_and_a_strategy():
    def marked(self, x):
        return poptorch.set_overlap_for_input(x, OVERLAP) * 2

    def unmarked(self, x):
        return poptorch.set_overlap_for_input(x, poptorch.OverlapMode.NoOverlap) * 2

    x = torch.ones(2)
    infer(unmarked, x)
    with pytest.raises(poptorch.Error, match=r"Overlapped IO is not supported with poptorch.PipelinedExecution"):
        infer(marked, x)
    sharded = poptorch.Options().setExecutionStrategy(poptorch.ShardedExecution())
    with pytest.raises(poptorch.Error, match=r"No IO tiles allocated. You must allocate at least 32 IO tiles"):
        infer(marked, x, options=sharded)
    with pytest.raises(poptorch.Error, match="Unsupported output mode for overlapped IO"):
        infer(marked, x, options=ready(poptorch.OutputMode.Final))


@pytest.mark.parametrize(
    "function, message",
    [
        (
            lambda self, x: poptorch.set_overlap_for_input(x, OVERLAP) + x,
            "must be the only op applied to an input. This is not the case for input 0 to the model",
        ),
        (
            lambda self, x: poptorch.set_overlap_for_input(x + 1, OVERLAP) + 1,
            "poptorch.set_overlap_for_input applied on a node which is not a tensor input to the model",
        ),
        (
            lambda self, x: poptorch.set_overlap_for_output(x + 1, OVERLAP) + 1,
            "poptorch.set_overlap_for_output applied on a node which is not a tensor output to the model",
        ),
        (
            lambda self, x: [poptorch.set_overlap_for_output(x + 1, OVERLAP)] * 2,
            "poptorch.set_overlap_for_output cannot be used with a tensor that is returned twice",
        ),
    ],
)
def test_overlap_marks_belong_on_inputs_and_outputs(function, message):
    with pytest.raises(poptorch.Error, match=message):
        infer(function, torch.ones(2), options=ready())


def trapping(**settings):
    options = poptorch.Options()
    options.Precision.enableFloatingPointExceptions(True)
    for name, value in settings.items():
        getattr(options, name)(value)
    return options


@pytest.mark.parametrize(
    "function, value, where",
    [
        (lambda self, x: 1 / x, 0.0, "div|reciprocal"),
        (lambda self, x: x.sqrt() + 1, -1.0, "sqrt"),
        (lambda self, x: x.exp() + 1, 1000.0, "exp"),
        (lambda self, x: x.half() * 30000, 4.0, "mul"),
        (lambda self, x: x * 0, float("inf"), "mul"),
        (lambda self, x: x - x, float("inf"), "sub"),
        (lambda self, x: x > 1, float("nan"), "gt"),
    ],
)
def test_floating_point_exceptions_name_their_operation(function, value, where):
    executor = poptorch.inferenceModel(Calls(function), trapping(deviceIterations=2))
    assert executor(torch.ones(4)).shape == (4,)
    with pytest.raises(poptorch.Error, match=f"floating-point exception happened in .*({where})"):
        executor(torch.tensor([2.0, value, 1.0, 1.0]))
    # One bad batch spoils no other.
    executor(torch.ones(4))


def test_infinities_that_the_program_means_are_no_exceptions():
    def attention(self, x):
        return torch.softmax(x.masked_fill(x > 1, float("-inf")), -1)

    x = torch.arange(4.0).reshape(1, 4)
    torch.testing.assert_close(infer(attention, x, options=trapping()), attention(None, x))


def test_exceptions_of_the_backward_pass_and_of_any_replica():
    def root(self, x):
        return F.l1_loss((self.w * x).sqrt(), torch.ones_like(x, device=x.device))

    model = Calls(root)
    executor = poptorch.trainingModel(model, trapping(replicationFactor=2))
    executor(torch.ones(4, 2))
    with pytest.raises(poptorch.Error, match=r"in aten\.sqrt\.default or its backward pass"):
        executor(torch.tensor([[1.0, 1.0], [1.0, 1.0], [1.0, 0.0], [1.0, 1.0]]))


def test_packed_sequences_are_refused_by_name():
    def packed(self, x):
        return nn.utils.rnn.pack_padded_sequence(x, torch.tensor([2, 1]), batch_first=True).data

    with pytest.raises(UnsupportedError, match="Packed sequences are not supported"):
        infer(packed, torch.ones(2, 2, 3))
    given = nn.utils.rnn.pack_sequence([torch.ones(2, 3), torch.ones(1, 3)])
    with pytest.raises(UnsupportedError, match="Packed sequences are not supported"):
        poptorch.inferenceModel(nn.LSTM(3, 2))(given)


def test_a_process_that_is_told_of_others_but_not_where_they_are_is_told_what_to_do():
    options = poptorch.Options()
    options.Distributed.configureProcessId(1, 2)
    # Which of the two depends on what the process has done before.
    with pytest.raises(InstanceError, match=r"Start the program with poprun|Call popdist.init\(\) at the start"):
        poptorch.trainingModel(Calls(lambda self, x: F.mse_loss(self.w * x, x)), options)(torch.ones(2, 2))
    assert poptorch.inferenceModel(Calls(lambda self, x: x + 1), options)(torch.ones(2)).shape == (2,)


def test_accumulation_is_not_set_behind_the_options_back():
    options = poptorch.Options()
    options._Popart.set("accumulationFactor", 4)
    with pytest.raises(UnsupportedError, match=r"Options.Training.gradientAccumulation\(4\)"):
        poptorch.inferenceModel(Calls(lambda self, x: x + 1), options)(torch.ones(4))


def test_a_buffer_to_update_must_exist():
    options = poptorch.Options().updatableNamedBuffers(["norm.mean"])
    with pytest.raises(poptorch.Error, match=r"does not have: \['norm.mean'\]"):
        poptorch.inferenceModel(nn.Sequential(nn.BatchNorm1d(2)), options)(torch.ones(2, 2))


def test_what_a_program_should_know_is_said_once(monkeypatch):
    said = []
    monkeypatch.setattr(poptorch.logger, "warning", lambda text, *args: said.append(text % args))

    def forward(self, x):
        said.append(f"the input is {x['a']}")
        return x["a"] + torch.zeros(2) + torch.zeros(2)

    executor = poptorch.inferenceModel(Calls(forward))
    for _ in range(2):
        executor({"a": torch.ones(2, 2).t()[:, ::2].expand(2, 2)})
    assert said.count("the input is <unavailable>") == 1
    assert said.count("No device set in torch.zeros(): forcing to IPU") == 1
    assert len([text for text in said if "contiguous" in text]) == 1
    assert len([text for text in said if "partially supported" in text]) == 1
