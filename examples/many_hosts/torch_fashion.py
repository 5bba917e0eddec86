"""Fashion-MNIST, trained by several instances: `poprun --num-instances 2 --num-replicas 4 python torch_fashion.py`.

The loader of every instance gives its part of the data; gradients are reduced over all replicas. With `--checkpoint`
instance 0 writes the state after every epoch, and a run that was broken off goes on from there.
"""

import argparse
import pathlib

import horovod.torch as hvd
import torch
from torch import nn

import popdist
import popdist.poptorch
import poptorch
from openipu import datasets

BATCH = 10


class Classifier(nn.Module):
    """Returns class scores, and the loss when it is given the labels."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
            nn.Flatten(), nn.Linear(400, 10), nn.LogSoftmax(dim=1),
        )  # fmt: skip
        self.loss = nn.NLLLoss()

    def forward(self, x, labels=None):
        x = self.layers(x)
        return x if labels is None else (x, self.loss(x, labels))


def as_dataset(images, labels, count):
    images = torch.from_numpy(images[:count]).float().unsqueeze(1) / 127.5 - 1
    return torch.utils.data.TensorDataset(images, torch.from_numpy(labels[:count]).long())


def save(path, epoch, model, optimizer):
    torch.save({"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, f"{path}.new")
    pathlib.Path(f"{path}.new").rename(path)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--epochs", type=int, default=4)
    arguments.add_argument("--checkpoint", help="a file for the state of the training")
    given = arguments.parse_args()
    popdist.init()
    hvd.init()
    first = popdist.getInstanceIndex() == 0

    (x, y), (x_test, y_test) = datasets.fashion_mnist()
    options = popdist.poptorch.Options().deviceIterations(10).randomSeed(1)
    # Every epoch in the same order, so that a run which goes on from a checkpoint sees what an unbroken one sees.
    loader = poptorch.DataLoader(
        options, as_dataset(x, y, 4000), BATCH, drop_last=True, auto_distributed_partitioning=True
    )

    torch.manual_seed(1)
    model = Classifier()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    begin = 0
    if given.checkpoint and pathlib.Path(given.checkpoint).exists():
        saved = torch.load(given.checkpoint, weights_only=False)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        begin = saved["epoch"] + 1
    training = poptorch.trainingModel(model, options, optimizer)
    for epoch in range(begin, given.epochs):
        losses = [training(images, labels)[1].mean() for images, labels in loader]
        loss = hvd.allreduce(torch.stack(losses).mean(), average=True)
        if first:
            print(f"epoch {epoch}: loss {loss:.4f}")
        if given.checkpoint:
            # All instances have the same state; one of them writes it.
            popdist.execute_on_instances({0}, save, given.checkpoint, epoch, model, optimizer)
    training.destroy()

    options = popdist.poptorch.Options().deviceIterations(5)
    test = poptorch.DataLoader(options, as_dataset(x_test, y_test, 1000), BATCH, auto_distributed_partitioning=True)
    inference = poptorch.inferenceModel(model.eval(), options)
    counts = torch.zeros(2)
    for images, labels in test:
        counts += torch.tensor([(inference(images).argmax(1) == labels).sum(), len(labels)])
    right, all_of_them = hvd.allreduce(counts, op=hvd.Sum)
    if first:
        print(f"test accuracy {right / all_of_them:.3f}")


main()
