"""The course classifier learns through PopTorch what it learns through stock PyTorch, from the same weights."""

import copy
import importlib.util
import pathlib

import numpy as np
import torch

import poptorch
from openipu import datasets

BATCH, ITERATIONS, CALLS = 16, 50, 2

path = pathlib.Path(__file__).parents[2] / "examples" / "torch" / "fashion_mnist_cnn.py"
spec = importlib.util.spec_from_file_location("fashion_mnist_cnn", path)
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)


def exact(dataset):
    return torch.utils.data.TensorDataset(dataset.tensors[0].double(), dataset.tensors[1])


def accuracy(model, dataset):
    with torch.no_grad():
        return float((model.eval()(dataset.tensors[0]).argmax(dim=1) == dataset.tensors[1]).float().mean())


def train_with_torch(model, dataset):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for images, labels in torch.utils.data.DataLoader(dataset, batch_size=BATCH):
        optimizer.zero_grad()
        _, loss = model(images, labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_with_poptorch(model, dataset):
    options = poptorch.Options().deviceIterations(ITERATIONS).outputMode(poptorch.OutputMode.All)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    training = poptorch.trainingModel(model, options, optimizer)
    losses = [training(*batch)[1] for batch in poptorch.DataLoader(options, dataset, batch_size=BATCH)]
    training.detachFromDevice()
    return torch.cat(losses).tolist()


def test_a_hundred_steps_have_the_losses_and_the_accuracy_of_stock_torch(monkeypatch):
    monkeypatch.setenv("OPENIPU_DATASETS", "sample")
    train, test = (example.as_dataset(*split) for split in datasets.fashion_mnist())
    train = torch.utils.data.TensorDataset(*(tensor[: BATCH * ITERATIONS * CALLS] for tensor in train.tensors))
    torch.manual_seed(0)
    ours = example.Classifier()
    # In float32 the reference itself may pick another maximum of nearly equal ones after some sixty steps.
    theirs = copy.deepcopy(ours).double()

    expected = train_with_torch(theirs, exact(train))
    losses = train_with_poptorch(ours, train)

    assert len(losses) == ITERATIONS * CALLS
    np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-4)
    # Of a thousand pictures one may lie on the border between two classes.
    reached = accuracy(theirs, exact(test))
    assert abs(accuracy(ours, test) - reached) <= 0.001
    assert reached > 0.6
