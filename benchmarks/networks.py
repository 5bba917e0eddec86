"""PyTorch networks that are measured and are no example: residual, transformer encoder, recurrent."""

from typing import Any

import torch
from torch import nn


class Block(nn.Module):
    """Two convolutions and the way past them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.past: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.past = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Adds both."""
        return torch.relu(self.body(x) + self.past(x))


class WithLoss(nn.Module):
    """A network that gives its loss too when it is trained, as PopTorch wants it."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        """Scores; with labels, scores and loss."""
        scores = self.body(x)
        return scores if labels is None else (scores, nn.functional.cross_entropy(scores, labels))


def resnet(classes: int = 10) -> nn.Module:
    """ResNet-18 for images of 32x32: no pooling before the first block."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    width = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(width, outputs, stride), Block(outputs, outputs, 1)]
        width = outputs
    return WithLoss(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)))


class Encoder(nn.Module):
    """Four layers of a transformer over 64 vectors, and their mean."""

    def __init__(self, width: int = 128, layers: int = 4, classes: int = 10) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of every example."""
        return self.head(self.layers(x).mean(1))


class Reader(nn.Module):
    """A recurrent layer over the rows of an image."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], units: int = 128) -> None:
        super().__init__()
        self.layer = kind(28, units, batch_first=True)
        self.head = nn.Linear(units, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores from what is known after the last row."""
        return self.head(self.layer(x)[0][:, -1])


def encoder() -> nn.Module:
    """The transformer with its loss."""
    return WithLoss(Encoder())


def lstm() -> nn.Module:
    """LSTM 128 with its loss."""
    return WithLoss(Reader(nn.LSTM))


def gru() -> nn.Module:
    """GRU 128 with its loss."""
    return WithLoss(Reader(nn.GRU))
