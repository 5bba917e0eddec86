"""Fashion-MNIST with a small convolutional network: training and inference on one IPU."""

import torch
from torch import nn

import poptorch
from openipu import datasets

BATCH = 16
EPOCHS = 5


class Classifier(nn.Module):
    """Returns class scores, and the loss when it is given the labels."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 5, 3)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(5, 12, 5)
        self.norm = nn.GroupNorm(3, 12)
        self.fc1 = nn.Linear(972, 100)
        self.fc2 = nn.Linear(100, 10)
        self.log_softmax = nn.LogSoftmax(dim=1)
        self.loss = nn.NLLLoss()

    def forward(self, x, labels=None):
        x = self.pool(torch.relu(self.conv1(x)))
        x = self.norm(torch.relu(self.conv2(x)))
        x = torch.relu(self.fc1(torch.flatten(x, start_dim=1)))
        x = self.log_softmax(self.fc2(x))
        if self.training:
            return x, self.loss(x, labels)
        return x


def as_dataset(images, labels):
    images = torch.from_numpy(images).float().unsqueeze(1) / 127.5 - 1
    return torch.utils.data.TensorDataset(images, torch.from_numpy(labels).long())


def main():
    train, test = (as_dataset(*split) for split in datasets.fashion_mnist())

    # 50 weight updates in one call: the host is asked once for all of them.
    options = poptorch.Options().deviceIterations(50).randomSeed(1)
    loader = poptorch.DataLoader(options, train, batch_size=BATCH, shuffle=True, drop_last=True)

    model = Classifier()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    training = poptorch.trainingModel(model, options, optimizer)
    for epoch in range(EPOCHS):
        losses = [training(images, labels)[1] for images, labels in loader]
        print(f"epoch {epoch + 1}: loss {torch.stack(losses).mean():.3f}")
    training.detachFromDevice()

    model.eval()
    options = poptorch.Options().deviceIterations(10)
    inference = poptorch.inferenceModel(model, options)
    correct = total = 0
    for images, labels in poptorch.DataLoader(options, test, batch_size=20):
        correct += (inference(images).argmax(dim=1) == labels).sum().item()
        total += len(labels)
    print(f"test accuracy {correct / total:.3f}")


if __name__ == "__main__":
    main()
