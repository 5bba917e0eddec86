"""An LSTM that reads Fashion-MNIST pictures row by row, on two replicas with gradient accumulation."""

import torch
from torch import nn

import poptorch
from openipu import datasets

MICRO_BATCH = 16
EPOCHS = 4


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(28, 64, batch_first=True)
        self.head = nn.Linear(64, 10)

    def forward(self, rows, labels=None):
        states, _ = self.lstm(rows)
        scores = self.head(states[:, -1])
        if labels is None:
            return scores
        return scores, nn.functional.cross_entropy(scores, labels)


def as_dataset(images, labels):
    return torch.utils.data.TensorDataset(torch.from_numpy(images).float() / 255, torch.from_numpy(labels).long())


def main():
    train, test = (as_dataset(*split) for split in datasets.fashion_mnist())

    # A call is 10 updates; an update is 2 micro-batches on each of 2 replicas, 64 pictures in all.
    options = poptorch.Options().deviceIterations(10).replicationFactor(2).randomSeed(1)
    options.Training.gradientAccumulation(2)
    loader = poptorch.DataLoader(options, train, batch_size=MICRO_BATCH, shuffle=True, drop_last=True)

    model = Reader()
    optimizer = poptorch.optim.Adam(model.parameters(), lr=0.003)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
    training = poptorch.trainingModel(model, options, optimizer)
    for epoch in range(EPOCHS):
        # One loss for each replica: the mean is taken on the host.
        losses = [training(rows, labels)[1].mean() for rows, labels in loader]
        schedule.step()
        training.setOptimizer(optimizer)
        print(f"epoch {epoch + 1}: loss {torch.stack(losses).mean():.3f}")
    training.detachFromDevice()

    inference = poptorch.inferenceModel(model.eval(), poptorch.Options().deviceIterations(4))
    rows, labels = test.tensors
    accuracy = (inference(rows).argmax(dim=1) == labels).float().mean()
    print(f"test accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
