"""PopTorch models leave a report where their options or POPLAR_ENGINE_OPTIONS say."""

import json

import torch
from torch import nn

import poptorch
from openipu.report.reading import read
from openipu.report.recording import finish_all


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.head = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x, y=None):
        out = self.head(torch.relu(self.hidden(x)))
        return out if y is None else (out, nn.functional.cross_entropy(out, y))


def test_training_is_reported_by_enable_profiling(tmp_path):
    options = poptorch.Options().deviceIterations(2)
    options.enableProfiling(str(tmp_path / "profile"))
    model = Classifier()
    trained = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(2):
        trained(torch.randn(8, 6), torch.randint(3, (8,)))
    finish_all()
    report = read(tmp_path / "profile" / "training" / "profile.pop")
    assert report["program"]["training"] and report["program"]["micro_batch"] == 4
    assert report["measured"]["executions"] == 2 and report["plan"]["device_iterations"] == 2
    assert {"hidden", "head"} <= {operation["layer"].split("/")[-1] for operation in report["operations"]}


def test_inference_is_reported_by_the_environment_under_its_name(tmp_path, monkeypatch):
    wish = {"autoReport.all": "true", "autoReport.directory": str(tmp_path)}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(wish))
    model = poptorch.inferenceModel(Classifier().eval(), poptorch.Options().modelName("classifier"))
    model(torch.randn(4, 6))
    assert not read(tmp_path / "classifier")["program"]["training"]
