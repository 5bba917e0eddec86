"""Half precision: float16 weights and activations, a scaled loss, optimizer state in float32."""

import torch
from torch import nn

import poptorch
from openipu import datasets

BATCH = 32
EPOCHS = 5


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.LayerNorm(128), nn.ReLU())
        self.head = nn.Linear(128, 10)

    def forward(self, x, labels=None):
        scores = self.head(self.body(x))
        if labels is None:
            return scores
        # The loss in float32: sums over a batch need the digits.
        return scores, nn.functional.cross_entropy(scores.float(), labels)


def as_tensors(images, labels):
    return torch.from_numpy(images).half() / 255, torch.from_numpy(labels).long()


def main():
    train, test = (as_tensors(*split) for split in datasets.fashion_mnist())
    options = poptorch.Options().deviceIterations(39).randomSeed(1)
    loader = poptorch.DataLoader(
        options, torch.utils.data.TensorDataset(*train), batch_size=BATCH, shuffle=True, drop_last=True
    )

    model = Network().half()
    optimizer = poptorch.optim.AdamW(
        model.parameters(),
        lr=0.001,
        loss_scaling=128.0,
        first_order_momentum_accum_type=torch.float32,
        second_order_momentum_accum_type=torch.float32,
    )
    training = poptorch.trainingModel(model, options, optimizer)
    for epoch in range(EPOCHS):
        losses = [training(images, labels)[1] for images, labels in loader]
        print(f"epoch {epoch + 1}: loss {torch.stack(losses).mean():.3f}")
    training.detachFromDevice()

    images, labels = test
    scores = poptorch.inferenceModel(model.eval())(images)
    print(f"results are {scores.dtype}, weights {model.head.weight.dtype}")
    print(f"test accuracy {(scores.argmax(dim=1) == labels).float().mean():.3f}")


if __name__ == "__main__":
    main()
