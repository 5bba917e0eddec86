"""A small transformer cut into four stages on four IPUs: it learns to sort digits."""

import torch
from torch import nn

import poptorch

LENGTH, DIGITS, WIDTH = 8, 10, 48
STEPS = 60


class Sorter(nn.Module):
    """Says for every position which digit belongs there once the sequence is sorted."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(DIGITS, WIDTH)
        self.position = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True) for _ in range(3)]
        )
        self.head = nn.Linear(WIDTH, DIGITS)

    def forward(self, digits, target=None):
        x = self.embedding(digits) + self.position
        for layer in self.layers:
            x = layer(x)
        scores = self.head(x)
        if target is None:
            return scores
        return scores, nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten())


def batch(rows):
    digits = torch.randint(0, DIGITS, (rows, LENGTH))
    return digits, digits.sort(dim=1).values


def main():
    torch.manual_seed(0)
    model = Sorter()
    # The embedding stays on IPU 0; every layer starts a stage on an IPU of its own.
    for number, layer in enumerate(model.layers, start=1):
        poptorch.BeginBlock(layer, f"layer{number}", ipu_id=number)

    options = poptorch.Options().deviceIterations(2)
    options.Training.gradientAccumulation(8)  # four stages need at least seven micro-batches an update
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=0.003)
    training = poptorch.trainingModel(model, options, optimizer)
    for step in range(STEPS):
        _, loss = training(*batch(8 * 8 * 2))
        if (step + 1) % 15 == 0:
            print(f"update {2 * (step + 1)}: loss {loss:.3f}")
    training.detachFromDevice()

    options = poptorch.Options().deviceIterations(4)
    digits, target = batch(256)
    scores = poptorch.inferenceModel(model.eval(), options)(digits)
    print(f"digits in their place: {(scores.argmax(dim=2) == target).float().mean():.3f}")


if __name__ == "__main__":
    main()
