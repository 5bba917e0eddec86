"""Small modules of every kind, with their loss, and batches for them."""

import torch
import torch.nn.functional as F
from torch import nn


class WithLoss(nn.Module):
    """A network whose forward pass takes the targets and returns (output, loss), as poptorch programs do."""

    def __init__(self, net, loss):
        super().__init__()
        self.net, self.loss = net, loss

    def forward(self, *inputs):
        *xs, target = inputs
        out = self.net(*xs)
        return out, self.loss(out, target)


class Course(nn.Module):
    """The classifier of the Fashion-MNIST course, with a smaller image for speed."""

    def __init__(self, side=28):
        super().__init__()
        self.conv1, self.pool = nn.Conv2d(1, 5, 3), nn.MaxPool2d(2, 2)
        self.conv2, self.norm = nn.Conv2d(5, 12, 5), nn.GroupNorm(3, 12)
        self.fc1, self.fc2 = nn.Linear(12 * ((side - 2) // 2 - 4) ** 2, 100), nn.Linear(100, 10)
        self.log_softmax, self.loss = nn.LogSoftmax(dim=1), nn.NLLLoss()

    def forward(self, x, labels=None):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.norm(F.relu(self.conv2(x)))
        x = self.log_softmax(self.fc2(F.relu(self.fc1(torch.flatten(x, start_dim=1)))))
        if labels is None:
            return x
        return x, self.loss(x, labels)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.rnn, self.head = kind(5, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Conv2d(3, 6, 1), nn.Conv2d(6, 6, 3, padding=1), nn.Linear(6, 4)

    def forward(self, x):
        x = F.relu(self.a(x))
        x = x + F.relu(self.b(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.out = nn.Embedding(11, 6), nn.Linear(6, 11, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, x):
        return self.out(torch.tanh(self.embedding(x).mean(1)))


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(20, 8, mode="mean"), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.bag(x))


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Bilinear(6, 3, 2)

    def forward(self, x, y):
        return self.b(F.gelu(self.a(x), approximate="tanh"), y)


class TwoLosses(nn.Module):
    """Two outputs, two losses, one final loss by `identity_loss`."""

    def __init__(self):
        super().__init__()
        self.body, self.kind, self.size = nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(8, 1)

    def forward(self, x, label):
        import poptorch

        h = torch.tanh(self.body(x))
        kind, size = self.kind(h), self.size(h)
        first, second = F.cross_entropy(kind, label), F.mse_loss(size, x.sum(1, keepdim=True))
        return {"kind": kind, "sizes": [size]}, poptorch.identity_loss(first + 0.5 * second, reduction="none")


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.layer(x).mean(1))


def _images(channels, side):
    return lambda n: torch.randn(n, channels, side, side)


def _vectors(*shape):
    return lambda n: torch.randn(n, *shape)


def _labels(classes, *shape):
    return lambda n: torch.randint(0, classes, (n, *shape))


CE, MSE = nn.CrossEntropyLoss, nn.MSELoss
# name: (module, inputs and target)
MODULES = {
    "course": (lambda: Course(16), (_images(1, 16), _labels(10))),
    "mlp": (
        lambda: WithLoss(nn.Sequential(nn.Linear(7, 16), nn.ReLU(), nn.Linear(16, 4)), CE()),
        (_vectors(7), _labels(4)),
    ),
    "cnn": (
        lambda: WithLoss(
            nn.Sequential(
                nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.ELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16, 3)
            ),
            CE(),
        ),
        (_images(2, 8), _labels(3)),
    ),
    "batch_norm": (
        lambda: WithLoss(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)), CE()),
        (_vectors(6), _labels(3)),
    ),
    "batch_norm_2d": (
        lambda: WithLoss(
            nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)), CE()
        ),
        (_images(2, 6), _labels(3)),
    ),
    "layer_norm": (
        lambda: WithLoss(nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU("tanh"), nn.Linear(8, 1)), MSE()),
        (_vectors(6), _vectors(1)),
    ),
    "lstm": (lambda: WithLoss(Recurrent(nn.LSTM), CE()), (_vectors(6, 5), _labels(3))),
    "gru": (lambda: WithLoss(Recurrent(nn.GRU), CE()), (_vectors(6, 5), _labels(3))),
    "text": (lambda: WithLoss(Text(), CE()), (_labels(20, 5), _labels(3))),
    "encoder": (lambda: WithLoss(Encoder(), CE()), (_vectors(5, 8), _labels(3))),
    "residual": (lambda: WithLoss(Residual(), CE()), (_images(3, 6), _labels(4))),
    "autoencoder": (
        lambda: WithLoss(
            nn.Sequential(nn.Linear(8, 3), nn.Tanh(), nn.Linear(3, 8), nn.Sigmoid()), nn.BCELoss()
        ),
        (lambda n: torch.rand(n, 8), lambda n: torch.rand(n, 8)),
    ),
    "conv1d": (
        lambda: WithLoss(
            nn.Sequential(nn.Conv1d(3, 4, 3), nn.SiLU(), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(16, 2)), CE()
        ),
        (_vectors(3, 10), _labels(2)),
    ),
    "transposed": (
        lambda: WithLoss(
            nn.Sequential(nn.ConvTranspose2d(3, 4, 3, stride=2), nn.LeakyReLU(), nn.Conv2d(4, 1, 2)), nn.L1Loss()
        ),
        (_images(3, 4), _vectors(1, 8, 8)),
    ),
    "tied": (lambda: WithLoss(Tied(), CE()), (_labels(11, 4), _labels(11))),
    "two_inputs": (lambda: WithLoss(TwoInputs(), nn.SmoothL1Loss()), (_vectors(4), _vectors(3), _vectors(2))),
    "two_losses": (lambda: TwoLosses(), (_vectors(6), _labels(4))),
    "instance_norm": (
        lambda: WithLoss(
            nn.Sequential(nn.Conv2d(2, 3, 3), nn.InstanceNorm2d(3, affine=True), nn.Softplus(), nn.Flatten()), MSE()
        ),
        (_images(2, 5), _vectors(27)),
    ),
}  # fmt: skip


def batch_of(name, rows):
    """Inputs and target of one call."""
    return [make(rows) for make in MODULES[name][1]]


def leaves(value):
    """The tensors of a result."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for item in (value.values() if isinstance(value, dict) else value) for leaf in leaves(item)]
