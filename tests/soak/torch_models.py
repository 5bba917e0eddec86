"""Random torch modules with their losses, and data for them."""

import random

import attrs
import torch
from torch import nn

ACTIVATIONS = [nn.ReLU, nn.Tanh, nn.Sigmoid, nn.ELU, nn.SELU, nn.Softplus, nn.GELU, nn.SiLU, nn.LeakyReLU, nn.Softsign,
               nn.Hardtanh, nn.CELU, nn.PReLU, nn.Mish, nn.Hardswish]  # fmt: skip


class WithLoss(nn.Module):
    """A network that takes the targets too and returns (output, loss)."""

    def __init__(self, net, loss):
        super().__init__()
        self.net, self.loss = net, loss

    def forward(self, x, target):
        import poptorch

        out = self.net(x)
        loss = self.loss(out, target)
        # Not one of the losses that poptorch knows by itself.
        return out, poptorch.identity_loss(loss, reduction="none") if isinstance(self.loss, nn.HuberLoss) else loss


class Residual(nn.Module):
    """x + f(x), or x * f(x)."""

    def __init__(self, inner, times):
        super().__init__()
        self.inner, self.times = inner, times

    def forward(self, x):
        return x * self.inner(x) if self.times else x + self.inner(x)


class Recurrent(nn.Module):
    """All outputs of a recurrent layer."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


class Attention(nn.Module):
    """Self-attention."""

    def __init__(self, width):
        super().__init__()
        self.layer = nn.MultiheadAttention(width, 1, batch_first=True)

    def forward(self, x):
        return self.layer(x, x, x, need_weights=False)[0]


class Mean(nn.Module):
    """The mean, or the greatest, over one axis."""

    def __init__(self, axis, greatest):
        super().__init__()
        self.axis, self.greatest = axis, greatest

    def forward(self, x):
        return x.amax(self.axis) if self.greatest else x.mean(self.axis)


@attrs.define
class Recipe:
    """One random module: the same every time it is built from the same seed (and torch's generator)."""

    seed: int
    normalised: bool = True
    kind: str = ""
    shape: tuple = ()
    loss: str = ""
    classes: int = 0
    words: list = attrs.field(factory=list)

    def __attrs_post_init__(self):
        draw = random.Random(self.seed)
        self.kind = draw.choice(["vector", "vector", "image", "image", "sequence", "tokens"])
        self.shape = {
            "vector": lambda: (draw.randint(2, 12),),
            "image": lambda: (draw.choice([1, 2, 3]), draw.randint(5, 12), draw.randint(5, 12)),
            "sequence": lambda: (draw.randint(3, 8), draw.randint(1, 6)),
            "tokens": lambda: (draw.randint(3, 8),),
        }[self.kind]()
        self.loss = draw.choice(["mse", "l1", "smooth", "cross", "cross", "nll", "bce", "huber", "soft"])
        self.classes = draw.randint(1, 5) + (self.loss in ("cross", "nll"))

    def build(self):
        """The module with its loss."""
        draw = random.Random(self.seed + 1)
        layers, shape = [], self.shape
        self.words = [f"{self.kind}{self.shape}"]
        if self.kind == "tokens":
            layers.append(nn.Embedding(20, draw.randint(2, 6)))
            shape = (*shape, layers[0].embedding_dim)
        for _ in range(draw.randint(1, 4)):
            made = _STEPS[len(shape)](self, draw, shape)
            shape = tuple(made.eval()(torch.zeros(2, *shape)).shape[1:])
            layers.append(made.train())
        if len(shape) > 1:
            axis = (2, 3) if len(shape) == 3 else 1
            kind = draw.choice([nn.Flatten, lambda: Mean(axis, False), lambda: Mean(axis, True)])
            layers.append(kind())
            shape = tuple(layers[-1](torch.zeros(2, *shape)).shape[1:])
        layers.append(nn.Linear(shape[0], self.classes))
        if self.loss in ("nll",):
            layers.append(nn.LogSoftmax(-1))
        self.words += [type(layer).__name__ for layer in layers]
        self.words.append(self.loss)
        losses = {"mse": nn.MSELoss, "l1": nn.L1Loss, "smooth": nn.SmoothL1Loss, "cross": nn.CrossEntropyLoss,
                  "nll": nn.NLLLoss, "bce": nn.BCEWithLogitsLoss, "huber": nn.HuberLoss,
                  "soft": nn.SoftMarginLoss}  # fmt: skip
        return WithLoss(nn.Sequential(*layers), losses[self.loss]())

    def data(self, rows):
        """Inputs and targets."""
        x = torch.randint(0, 20, (rows, *self.shape)) if self.kind == "tokens" else torch.randn(rows, *self.shape)
        if self.loss in ("cross", "nll"):
            return x, torch.randint(0, self.classes, (rows,))
        if self.loss == "bce":
            return x, torch.randint(0, 2, (rows, self.classes)).float()
        if self.loss == "soft":
            return x, torch.randint(0, 2, (rows, self.classes)).float() * 2 - 1
        return x, torch.randn(rows, self.classes)

    def cut(self, model, stages):
        """Make stages of a module, in place."""
        import poptorch

        count = len(model.net)
        for stage in range(1, min(stages, count)):
            place = stage * count // min(stages, count)
            model.net[place] = poptorch.BeginBlock(model.net[place], ipu_id=stage)

    def _vector(self, draw, shape):
        kind, width = draw.randrange(7), draw.randint(2, 16)
        if kind == 0:
            return nn.BatchNorm1d(shape[0]) if self.normalised and draw.random() < 0.5 else nn.LayerNorm(shape[0])
        if kind == 1:
            inner = nn.Sequential(nn.Linear(shape[0], shape[0]), draw.choice(ACTIVATIONS)())
            return Residual(inner, draw.random() < 0.4)
        if kind == 2:
            return nn.Unflatten(1, (shape[0], 1))
        if kind == 3:
            return draw.choice([*ACTIVATIONS, lambda: nn.Softmax(-1)])()
        return nn.Sequential(nn.Linear(shape[0], width, bias=draw.random() < 0.8), draw.choice(ACTIVATIONS)())

    def _sequence(self, draw, shape):
        kind, width, (_, size) = draw.randrange(6), draw.randint(1, 8), shape
        if kind == 0:
            return nn.LayerNorm(size)
        if kind in (1, 2):
            cell = draw.choice([nn.LSTM, nn.GRU])
            return Recurrent(cell(size, width, batch_first=True, num_layers=draw.choice([1, 1, 2]),
                                  bidirectional=draw.random() < 0.2))  # fmt: skip
        if kind == 3:
            return Attention(size)
        return nn.Sequential(nn.Linear(size, width), draw.choice(ACTIVATIONS)())

    def _image(self, draw, shape):
        kind, width, (channels, high, wide) = draw.randrange(10), draw.randint(1, 8), shape
        small = min(high, wide) < 3
        if kind == 0:
            if self.normalised and draw.random() < 0.5 and high * wide > 1:
                return nn.BatchNorm2d(channels)
            return nn.GroupNorm(1, channels)
        if kind == 1 and not small:
            size = draw.choice([2, 3])
            pool = draw.choice([nn.MaxPool2d, nn.AvgPool2d])
            return pool(size, draw.choice([1, 2]), draw.choice([0, 1]), ceil_mode=draw.random() < 0.2)
        if kind == 2:
            return nn.Conv2d(channels, channels * 2, 3, padding=1, groups=channels)
        if kind == 3 and high < 16:
            stride = draw.choice([1, 2])
            return nn.ConvTranspose2d(channels, width, 3, stride, padding=1, output_padding=stride - 1)
        if kind == 4 and high < 12:
            return nn.Upsample(scale_factor=2, mode=draw.choice(["nearest", "bilinear"]))
        if kind == 5:
            inner = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), draw.choice(ACTIVATIONS)())
            return Residual(inner, draw.random() < 0.3)
        if kind == 6:
            return draw.choice([nn.ZeroPad2d, nn.ReflectionPad2d])(1) if not small else nn.ZeroPad2d(1)
        if kind == 7:
            return nn.AdaptiveAvgPool2d(draw.choice([1, 2]))
        padding = 1 if small else draw.choice([0, 1, 2])
        stride, dilation = draw.choice([(1, 1), (1, 1), (2, 1), ((1, 2), 1)]) if small else draw.choice(
            [(1, 1), (1, 1), (2, 1), ((1, 2), 1), (1, 2)])  # fmt: skip
        if dilation == 2:
            padding = 2
        layer = nn.Conv2d(
            channels, width, draw.choice([1, 3, (1, 3)]), stride, padding, dilation, bias=draw.random() < 0.8
        )
        return nn.Sequential(layer, draw.choice(ACTIVATIONS)())


_STEPS = {1: Recipe._vector, 2: Recipe._sequence, 3: Recipe._image}


def optimizers(draw):
    """A random optimizer: its name, and functions that make ours and stock's for a module."""
    import poptorch

    rate, decay = draw.choice([0.003, 0.01]), draw.choice([0.0, 0.0, 0.01])
    kinds = {
        "SGD": ("SGD", {}),
        "momentum": ("SGD", {"momentum": 0.9}),
        "nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
        "Adam": ("Adam", {"eps": 1e-3}),
        "AdamW": ("AdamW", {"eps": 1e-3}),
        "RMSprop": ("RMSprop", {"eps": 1e-3}),
        "centered": ("RMSprop", {"eps": 1e-3, "centered": True, "momentum": 0.5}),
    }
    name = draw.choice(sorted(kinds))
    kind, settings = kinds[name]
    settings = {**settings, "lr": rate, "weight_decay": decay}
    groups = draw.random() < 0.2

    def made(library):
        def make(model):
            parameters = list(model.parameters())
            if groups and len(parameters) > 1:
                half = len(parameters) // 2
                return getattr(library, kind)(
                    [{"params": parameters[:half]}, {"params": parameters[half:], "lr": rate / 2}], **settings
                )
            return getattr(library, kind)(parameters, **settings)

        return make

    # Stock torch's own optimizers are taken too.
    mine = torch.optim if draw.random() < 0.3 else poptorch.optim
    return f"{name}{' in groups' if groups else ''}", made(mine), made(torch.optim)
