"""Models cut into blocks: their stages, rules and refusals; their numbers are those of accumulation."""

import copy

import pytest
import torch
from torch import nn

import poptorch
from openipu.torch.ops import blocks


class Deep(nn.Module):
    def __init__(self, annotate=True):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(4)])
        self.loss = nn.MSELoss()
        if annotate:
            for number, layer in enumerate(self.layers[1:], 1):
                poptorch.BeginBlock(layer, f"B{number}", ipu_id=number)

    def forward(self, x, y=None):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return (x, self.loss(x, y)) if y is not None else x


def options(accumulation=1, strategy=None):
    made = poptorch.Options()
    made.Training.gradientAccumulation(accumulation)
    if strategy is not None:
        made.setExecutionStrategy(strategy)
    return made


def trained(model, opts, batches, lr=0.1):
    executor = poptorch.trainingModel(model, opts, poptorch.optim.SGD(model.parameters(), lr=lr, momentum=0.9))
    losses = [executor(*batch)[1] for batch in batches]
    return torch.stack(losses), executor


def test_a_pipeline_trains_like_accumulation():
    torch.manual_seed(0)
    model = Deep()
    plain = copy.deepcopy(model)
    poptorch.removeBlocks(plain)
    batches = [(torch.randn(14, 4), torch.randn(14, 4)) for _ in range(3)]
    losses, executor = trained(model, options(7), batches)
    expected, _ = trained(plain, options(7), batches)
    torch.testing.assert_close(losses, expected)
    pipeline = executor._session.compiled.plan.pipeline
    assert pipeline.stages == 4 and pipeline.device_mapping == (0, 1, 2, 3)
    assert executor._session.compiled.ipus == 4


STRATEGIES = {
    "sharded": lambda: poptorch.ShardedExecution(poptorch.AutoStage.SameAsIpu),
    "stages": lambda: poptorch.ShardedExecution(poptorch.Stage("B1", "B2").ipu(1), poptorch.Stage("B3").ipu(0)),
    "serial phases": lambda: poptorch.SerialPhasedExecution("B1", poptorch.Stage("B2").ipu(0), ["B3"]),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_other_strategies_run_in_order(name):
    torch.manual_seed(0)
    model = Deep()
    if name == "serial phases":
        poptorch.removeBlocks(model)
        for number, layer in enumerate(model.layers[1:], 1):
            poptorch.BeginBlock(layer, f"B{number}")
    plain = copy.deepcopy(model)
    poptorch.removeBlocks(plain)
    batch = (torch.randn(2, 4), torch.randn(2, 4))
    losses, _ = trained(model, options(1, STRATEGIES[name]()), [batch] * 2)
    torch.testing.assert_close(losses, trained(plain, options(1), [batch] * 2)[0])


def test_too_few_micro_batches_are_refused():
    with pytest.raises(poptorch.Error, match=r"number of pipeline stages \(7\).*additional 3 stages"):
        trained(Deep(), options(6), [(torch.randn(12, 4), torch.randn(12, 4))])
    with pytest.raises(poptorch.Error, match=r"deviceIterations must be greater .* pipeline stages \(4\)"):
        poptorch.inferenceModel(Deep(), poptorch.Options().deviceIterations(3))(torch.randn(3, 4))


def test_unknown_blocks_and_missing_ipus_are_refused():
    strategy = poptorch.PipelinedExecution("B1", "B2")
    with pytest.raises(AssertionError, match=r"Unknown Block 'B3'"):
        trained(Deep(), options(7, strategy), [(torch.randn(14, 4), torch.randn(14, 4))])
    model = Deep(annotate=False)
    poptorch.BeginBlock(model.layers[1], "A")
    with pytest.raises(AssertionError, match=r"no IPU was specified for block A"):
        poptorch.inferenceModel(model)(torch.randn(1, 4))


class InBlocks(nn.Module):
    def __init__(self, after=False):
        super().__init__()
        self.a, self.b, self.after = nn.Linear(3, 3), nn.Linear(3, 3), after

    @poptorch.BlockFunction("second", ipu_id=1)
    def second(self, x):
        return self.b(x)

    def forward(self, x):
        poptorch.Block.useAutoId()
        with poptorch.Block(ipu_id=0):
            x = self.a(x)
        x = self.second(x)
        return x + 1 if self.after else x


def test_blocks_are_contexts_and_decorators():
    model = InBlocks()
    x = torch.randn(2, 3)
    executor = poptorch.inferenceModel(model, poptorch.Options().deviceIterations(2))
    torch.testing.assert_close(executor(x), model(x).detach())
    assert executor._session.compiled.plan.pipeline.device_mapping == (0, 1)
    with pytest.raises(poptorch.Error, match=r"No active Block, all the ops must belong to a Block"):
        poptorch.inferenceModel(InBlocks(after=True), poptorch.Options().deviceIterations(2))(x)


def test_annotations_leave_the_layer_as_it_is():
    layer = nn.Linear(2, 2)
    keys = list(layer.state_dict())
    assert poptorch.BeginBlock(layer, "a", 1) is layer
    assert type(layer) is nn.Linear and list(layer.state_dict()) == keys
    assert copy.deepcopy(layer)(torch.ones(1, 2)).shape == (1, 2)
    with pytest.raises(poptorch.Error, match=r"already been assigned to a block"):
        poptorch.BeginBlock(layer, "b")
    assert "BeginBlock(user_id=a, ipu_id=1)" in poptorch.module_repr(nn.Sequential(layer))
    poptorch.removeBlocks(layer)
    poptorch.BeginBlock(layer, "b")
    assert poptorch.BeginBlock(torch.relu, "c")(torch.tensor(-1.0)) == 0
    with pytest.raises(poptorch.Error, match=r"not an instance of torch.nn.Module or function"):
        poptorch.BeginBlock(3)


def test_three_ipus_are_rounded_up_only_when_asked():
    def model():
        made = Deep(annotate=False)
        for number, layer in enumerate(made.layers[1:3], 1):
            poptorch.BeginBlock(layer, f"B{number}", ipu_id=number)
        return made

    opts = poptorch.Options().deviceIterations(3)
    with pytest.raises(poptorch.Error, match=r"use of 3 IPUs.*minimum of 4"):
        poptorch.inferenceModel(model(), opts)(torch.randn(3, 4))
    opts = poptorch.Options().deviceIterations(3).autoRoundNumIPUs(True)
    executor = poptorch.inferenceModel(model(), opts)
    executor(torch.randn(3, 4))
    assert executor._session.compiled.ipus == 4
    # The number of IPUs is looked at before the number of stages, and offline there is no hardware to be rounded to.
    with pytest.raises(poptorch.Error, match=r"use of 3 IPUs.*minimum of 4"):
        poptorch.inferenceModel(model(), poptorch.Options())(torch.randn(1, 4))
    offline = poptorch.inferenceModel(model(), poptorch.Options().deviceIterations(3).useOfflineIpuTarget())
    offline.compile(torch.randn(3, 4))
    assert offline._session.compiled.ipus == 3


def test_multi_conv_checks_its_arguments():
    with pytest.raises(ValueError, match=r"Invalid partials types"):
        poptorch.MultiConv().partialsTypes(torch.int32)
    with pytest.raises(AssertionError, match=r"Invalid plan type!"):
        poptorch.MultiConv().planType(3)
    with pytest.raises(AssertionError, match=r"Invalid available memory proportion!"):
        poptorch.MultiConv().availableMemoryProportions("a")


class Grouped(nn.Module):
    def __init__(self, nested=False, empty=False):
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 1, 3), nn.Conv2d(1, 1, 3)
        self.nested, self.empty = nested, empty

    def forward(self, x):
        with poptorch.MultiConv().perConvReservedTiles(100), poptorch.NameScope("inside"):
            if self.empty:
                return x * 2
            if self.nested:
                with poptorch.MultiConv():
                    return self.a(x)
            with poptorch.Attribute(__outline={"layer": "a"}):
                return self.a(x) + self.b(x)


def test_multi_conv_groups_convolutions():
    x = torch.randn(1, 1, 5, 5)
    model = Grouped()
    torch.testing.assert_close(poptorch.inferenceModel(model)(x), model(x).detach())
    with pytest.raises(poptorch.Error, match=r"Nested poptorch.MultiConv"):
        poptorch.inferenceModel(Grouped(nested=True))(x)
    with pytest.raises(poptorch.Error, match=r"Unexpected end_multi_conv"):
        poptorch.inferenceModel(Grouped(empty=True))(x)


def test_stages_are_counted_where_the_ipu_changes():
    assert blocks.Stages((0, 1, 1, 2), {}).used_ipus == 3
