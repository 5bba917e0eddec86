"""Executors: batches, results, arguments, types, random numbers, counters and refusals."""

import collections
import copy
import datetime
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import poptorch


class Affine(nn.Module):
    """Counts nothing, learns nothing: results can be told by their inputs."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return self.w * x, x.sum()


def options(iterations=1, replicas=1, mode=None, period=None):
    made = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas)
    return made if mode is None else made.outputMode(mode, period)


def test_inference_returns_every_micro_batch_in_the_order_of_the_input():
    x = torch.arange(24.0).reshape(12, 2)
    out, total = poptorch.inferenceModel(Affine(), options(3, 2))(x)
    torch.testing.assert_close(out, 2 * x)
    torch.testing.assert_close(total, x.reshape(6, 4).sum(1))


MODES = {
    "Final": (poptorch.OutputMode.Final, None, lambda s: s[-1:]),
    "Sum": (poptorch.OutputMode.Sum, None, lambda s: s.sum(0, keepdim=True)),
    "EveryN": (poptorch.OutputMode.EveryN, 2, lambda s: s[1::2]),
}


@pytest.mark.parametrize("name", MODES)
def test_output_modes(name):
    mode, period, pick = MODES[name]
    x = torch.arange(32.0).reshape(16, 2)
    out, total = poptorch.inferenceModel(Affine(), options(4, 2, mode, period))(x)
    steps = (2 * x).reshape(4, 2, 2, 2)
    torch.testing.assert_close(out, pick(steps).reshape(-1, 2))
    torch.testing.assert_close(total, pick(x.reshape(4, 2, 4).sum(-1)).reshape(-1))


def test_a_period_must_fit():
    with pytest.raises(poptorch.Error, match=r"must be a factor"):
        poptorch.inferenceModel(Affine(), options(4, 1, poptorch.OutputMode.EveryN, 3))(torch.ones(4))


def test_a_batch_that_cannot_be_cut_is_refused():
    with pytest.raises(AssertionError, match=r"batch dimension \(5\) must be a multiple of.*= 6"):
        poptorch.inferenceModel(Affine(), options(3, 2))(torch.ones(5, 2))


def test_inference_refuses_accumulation_and_options_freeze():
    opts = options()
    opts.Training.gradientAccumulation(2)
    with pytest.raises(poptorch.Error, match=r"gradientAccumulation"):
        poptorch.inferenceModel(Affine(), opts)
    opts = options()
    poptorch.inferenceModel(Affine(), opts)
    with pytest.raises(AttributeError, match=r"frozen|Options"):
        opts.deviceIterations(7)
    with pytest.raises(poptorch.Error, match=r"Expected poptorch.Options"):
        poptorch.inferenceModel(Affine(), {"a": 1})


Pair = collections.namedtuple("Pair", "first second")


class Structured(nn.Module):
    def forward(self, x, more, scale=3, *, flag=False, **rest):
        first, second = more["pair"]
        value = (x + first - second) * scale
        return {"out": Pair(value, [x, "text"]), "rest": sorted(rest), "flag": flag, "none": None}, value, value


def test_structures_go_in_and_come_out():
    model = poptorch.inferenceModel(Structured())
    x, a, b = torch.rand(2), torch.rand(2), torch.rand(2)
    out, one, two = model(x, {"pair": (a, b)}, extra=5)
    assert isinstance(out["out"], Pair) and out["out"].second[1] == "text"
    assert out["rest"] == ["extra"] and out["flag"] is False and out["none"] is None
    torch.testing.assert_close(one, (x + a - b) * 3)
    assert torch.equal(one, two)
    torch.testing.assert_close(model(more={"pair": (b, a)}, scale=3, x=x, extra=5)[1], (x + b - a) * 3)

    cases = [
        (
            lambda: model(torch.rand(3), {"pair": (a, b)}, extra=5),
            r"Shape mismatch for x: expected torch.Size\(\[2\]\)",
        ),
        (lambda: model(x.int(), {"pair": (a, b)}, extra=5), "Data type mismatch for x: expected torch.float32"),
        (lambda: model(x, {"pair": [a, b]}, extra=5), r"Type mismatch for more\[pair\]"),
        (lambda: model(x, {"pair": (a, b, a)}, extra=5), r"Length mismatch for more\[pair\]: expected 2"),
        (lambda: model(x, {"par": (a, b)}, extra=5), "Keys mismatch for more: Unexpected arguments: par. Missing"),
        (lambda: model(x, {"pair": (a, b)}, 4, extra=5), "Value mismatch for scale: expected 3 but got 4"),
        (lambda: model(x, {"pair": (a, b)}), "Keys mismatch for named arguments"),
        (lambda: model(x), "Mandatory parameter more missing"),
    ]
    for call, text in cases:
        with pytest.raises(poptorch.Error, match=text):
            call()
    with pytest.raises(AssertionError, match=r"passed more than once"):
        model(x, {"pair": (a, b)}, x=x)


def test_wrong_arguments_are_refused():
    model = poptorch.inferenceModel(Affine())
    with pytest.raises(AssertionError, match=r"Too many arguments provided"):
        model(torch.ones(2), torch.ones(2))
    with pytest.raises(AssertionError, match=r"is not a valid parameter"):
        model(torch.ones(2), y=1)
    with pytest.raises(poptorch.Error, match=r"Zero-sized tensors"):
        model(torch.ones(0))
    with pytest.raises(poptorch.Error, match=r"Unsupported input type torch.complex64"):
        model(torch.ones(2, dtype=torch.complex64))


class Types(nn.Module):
    def forward(self, x, i):
        return x.argmax(1), i * 2, x.double(), x > 0, x.half()


def test_results_have_the_types_of_the_device():
    made = poptorch.inferenceModel(Types())(torch.randn(2, 3, dtype=torch.float64), torch.arange(2))
    assert [t.dtype for t in made] == [torch.int32, torch.int32, torch.float32, torch.bool, torch.float16]


def test_weights_follow_the_type_of_the_activations():
    layer = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.LayerNorm(8), nn.Linear(8, 3))
    x = torch.randn(2, 1, 4, 4)
    assert poptorch.inferenceModel(layer)(x.half()).dtype == torch.float16
    assert layer[0].weight.dtype == torch.float32


class InPlace(nn.Module):
    def forward(self, x):
        x += 1
        return x * 2


def test_inputs_are_written_back():
    x = torch.zeros(4, 2)
    out = poptorch.inferenceModel(InPlace(), options(2, mode=poptorch.OutputMode.Final))(x)
    assert torch.equal(x, torch.ones(4, 2))
    assert torch.equal(out, torch.full((2, 2), 2.0))


class Rebinding(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count = self.count + 1
        return x + self.count


def test_what_a_static_graph_cannot_do_is_refused():
    model = Rebinding()
    with pytest.raises(poptorch.Error, match=r"Buffer count is reassigned within the model"):
        poptorch.inferenceModel(model)(torch.ones(1))
    assert model.count == 0

    class Deciding(nn.Module):
        def forward(self, x):
            return x * 2 if x.sum() > 0 else x

    class Item(nn.Module):
        def forward(self, x):
            return x * x.sum().item()

    class Cpu(nn.Module):
        def forward(self, x):
            return x.to("cpu") * 2

    for bad, text in (
        (Deciding, "static"),
        (Item, "aten::item is only supported in eager mode"),
        (Cpu, "Illegal move"),
    ):
        with pytest.raises(poptorch.Error, match=text):
            poptorch.inferenceModel(bad())(torch.ones(2))


class OnIpu(nn.Module):
    def forward(self, x):
        assert poptorch.isRunningOnIpu()
        return x.to("ipu") + torch.ones(2, device="ipu")


def test_code_may_name_the_device():
    assert torch.equal(poptorch.inferenceModel(OnIpu())(torch.zeros(2)), torch.ones(2))
    assert not poptorch.isRunningOnIpu()


class Noise(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout()

    def forward(self, x):
        return self.drop(x), torch.rand_like(x)


def test_random_numbers_are_repeatable_and_differ_between_replicas():
    def made():
        return poptorch.inferenceModel(Noise(), options(2, 2).randomSeed(7))

    x = torch.ones(400)
    first, second = made(), made()
    a, b = first(x), second(x)
    assert torch.equal(a[0], b[0]) and torch.equal(a[1], b[1])
    assert 120 < (a[0] == 0).sum() < 280
    parts = a[1].chunk(4)
    assert all(not torch.equal(parts[0], part) for part in parts[1:])
    assert first.rng_state == second.rng_state
    kept = first.rng_state
    c = first(x)
    assert not torch.equal(a[1], c[1])
    second.rng_state = kept
    assert torch.equal(second(x)[1], c[1])


def test_modes_of_the_module_count_when_it_is_captured():
    model = Noise()
    model.eval()
    assert torch.equal(poptorch.inferenceModel(model)(torch.ones(50))[0], torch.ones(50))


def test_results_have_no_backward():
    out, _ = poptorch.inferenceModel(Affine())(torch.ones(2))
    with pytest.raises(poptorch.Error, match=r"cannot be called explicitly"):
        out.backward()


def test_counters_and_times():
    model = poptorch.inferenceModel(Affine(), options(3, 2).logCycleCount(True))
    assert model.getPerfCounters() == {k: [[]] for k in ("input", "input_complete", "output", "output_complete")}
    assert model.getLatency() == (0.0, 0.0, 0.0)
    for ask, text in ((model.cycleCount, "run the model"), (model.compilationTime, "compile the model")):
        with pytest.raises(poptorch.Error, match=text):
            ask()
    with pytest.raises(AssertionError, match=r"must be compiled"):
        model.getTensorNames()
    model(torch.ones(6, 2))
    counters = model.getPerfCounters()
    assert [len(x) for x in counters["input"]] == [6] and [len(x) for x in counters["output"]] == [6, 6]
    low, high, mean = model.getLatency()
    assert 0 < low <= mean <= high
    parts = [model.getHostIpuLatency(), model.getComputeLatency(), model.getIpuHostLatency()]
    assert np.isclose(sum(p[2] for p in parts), mean)
    assert isinstance(model.compilationTime(), datetime.timedelta) and model.cycleCount() > 0


def test_hooks_run_around_the_capture():
    seen = []
    handles = [
        poptorch.registerPreCompileHook(lambda: seen.append("before")),
        poptorch.registerPostCompileHook(lambda: seen.append("after")),
    ]
    model = poptorch.inferenceModel(Affine())
    model(torch.ones(1))
    model(torch.ones(1))
    for handle in handles:
        handle.remove()
    poptorch.inferenceModel(Affine())(torch.ones(1))
    assert seen == ["before", "after"]
    with pytest.raises(RuntimeError, match=r"Pre-compile hook must be callable"):
        poptorch.registerPreCompileHook(1)


def test_offline_models_compile_and_do_not_run():
    model = poptorch.inferenceModel(Affine(), poptorch.Options().useOfflineIpuTarget())
    with pytest.raises(AssertionError, match=r"offline device"):
        model(torch.ones(2))
    model.compile(torch.ones(2))
    assert model.isCompiled() and not model.isAttachedToDevice()


def test_attributes_are_those_of_the_module():
    model = Affine()
    executor = poptorch.inferenceModel(model)
    executor.eval()
    # The executor's module is a shallow copy: it has a mode of its own, and shares all else.
    assert not executor.model.training and model.training
    assert executor.options.output_mode == poptorch.OutputMode.All
    assert repr(executor) == repr(model)
    with pytest.raises(AttributeError):
        _ = executor.nothing


class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, 2.0]))

    def forward(self, x):
        return nn.functional.mse_loss(self.w * x, torch.zeros_like(x))


def test_anchored_tensors_come_back():
    opts = options(2)
    opts.anchorTensor("gradient", "Gradient___w", poptorch.OutputMode.All)
    opts.anchorTensor("weight", "w")
    opts.anchorTensor("input", "input_0")
    model = Learner()
    executor = poptorch.trainingModel(model, opts, poptorch.optim.SGD(model.parameters(), lr=0.5))
    executor(torch.ones(2, 2))
    gradients = executor.getAnchoredTensor("gradient").reshape(2, 2)
    torch.testing.assert_close(gradients[0], torch.tensor([1.0, 2.0]))
    torch.testing.assert_close(executor.getAnchoredTensor("weight"), torch.tensor([0.5, 1.0]))
    torch.testing.assert_close(gradients[1], torch.tensor([0.5, 1.0]))
    assert executor.getAnchoredTensor("input").shape == (1, 2)
    with pytest.raises(AssertionError, match="No tensor with name other found"):
        executor.getAnchoredTensor("other")
    names = executor.getTensorNames()
    prefixes = ("input", "loss", "Gradient___", "UpdatedVar__", "scaledLearningRate", "weightDecayScaleFactor")
    assert all(any(name.startswith(prefix) for name in names) for prefix in prefixes)


def test_substitutions_are_active_while_capturing(monkeypatch):
    seen = []

    class Manager:
        def replace(self):
            seen.append("replace")

        def restore(self):
            seen.append("restore")

    monkeypatch.setattr(poptorch._OverwriteContextManager, "_managers", [])
    poptorch._OverwriteContextManager.registerSubsitutionManager(Manager)
    poptorch.inferenceModel(Affine())(torch.ones(1))
    assert seen == ["replace", "restore"]


class Constants(nn.Module):
    def __init__(self):
        super().__init__()
        self.constant, self.w = torch.ones(3), nn.Parameter(torch.zeros(2))

    def forward(self, x):
        return x + 1, self.constant, self.w, torch.zeros(1), x


def test_constants_of_the_host_are_returned_as_they_are():
    model = poptorch.inferenceModel(Constants(), options(2))
    with pytest.warns(UserWarning, match=r"Output expected to be on the IPU but is on cpu"):
        made = model(torch.ones(4))
    assert [tuple(tensor.shape) for tensor in made] == [(4,), (3,), (4,), (2,), (4,)]


def test_stochastic_rounding_makes_casts_right_on_average():
    class Cast(torch.nn.Module):
        def forward(self, x):
            return x.half().float()

    def cast(enabled):
        options = poptorch.Options()
        options.randomSeed(3)
        options.Precision.enableStochasticRounding(enabled)
        executor = poptorch.inferenceModel(Cast(), options)
        try:
            return executor(torch.full((20_000,), 3.1415927)).numpy()
        finally:
            executor.destroy()

    drawn = cast(True)
    below, above = np.unique(drawn)
    up = (np.float32(3.1415927) - below) / (above - below)
    spread = (above - below) * np.sqrt(up * (1 - up))
    np.testing.assert_allclose(drawn.mean(dtype=np.float64), 3.1415927, atol=5 * spread / np.sqrt(20_000))
    np.testing.assert_allclose(drawn.std(dtype=np.float64), spread, rtol=0.05)
    np.testing.assert_array_equal(cast(True), drawn)
    assert len(np.unique(cast(False))) == 1


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_executor_is_not_copied(copied):
    executor = poptorch.inferenceModel(Affine())
    with pytest.raises(poptorch.Error, match="cannot be copied or pickled"):
        copied(executor)
    torch.testing.assert_close(copy.deepcopy(executor.model).w, executor.model.w)
