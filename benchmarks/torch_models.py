"""The PyTorch models that are measured: those of the examples with their settings, and larger networks."""

from collections.abc import Callable
from typing import Any

import attrs

Tensors = tuple[Any, Any]


@attrs.frozen
class Case:
    """One row of the table.

    Attributes:
      name: what the table calls it.
      micro_batch, iterations, accumulation, replicas: the numbers that PopTorch cuts a batch by.
      calls: calls of the executor in an epoch.
      optimizer: its name in `torch.optim` and in `poptorch.optim`.
      rates: its hyperparameters.
      scaled: whether PopTorch scales the loss and keeps the optimizer's state in float32, as float16 needs.
      peers: what it is compared with; a type in the name is that of stock PyTorch's weights and inputs.
    """

    name: str
    micro_batch: int
    iterations: int
    calls: int
    optimizer: str
    rates: dict[str, float]
    accumulation: int = 1
    replicas: int = 1
    scaled: bool = False
    # One thread as well: two that share their cores with other work mostly wait for each other.
    peers: tuple[str, ...] = ("torch eager", "torch eager 1 thread", "torch.compile")

    @property
    def batch(self) -> int:
        """Rows of one weight update: the batch size of the peers."""
        return self.micro_batch * self.accumulation * self.replicas

    @property
    def steps(self) -> int:
        """Weight updates in an epoch."""
        return self.iterations * self.calls


CASES = {
    "classifier": Case(
        "course classifier, batch 16, SGD, 50 iterations a call", 16, 50, 6, "SGD",
        {"lr": 0.001, "momentum": 0.9},
    ),
    "transformer": Case(
        "transformer on 4 IPUs, batch 8x8, AdamW", 8, 2, 20, "AdamW", {"lr": 0.003},
        accumulation=8,
    ),
    "torch-lstm": Case(
        "LSTM 64 on 2 replicas, batch 2x2x16, Adam", 16, 10, 7, "Adam", {"lr": 0.003},
        accumulation=2, replicas=2,
    ),
    "torch-lstm-128": Case("LSTM 128 over 28x28, batch 64, Adam", 64, 20, 5, "Adam", {"lr": 0.001}),
    "torch-gru-128": Case("GRU 128 over 28x28, batch 64, Adam", 64, 20, 5, "Adam", {"lr": 0.001}),
    "encoder": Case("transformer 4x128, sequence 64, batch 16, AdamW", 16, 10, 4, "AdamW", {"lr": 0.001}),
    "resnet": Case(
        "ResNet-18, 32x32, batch 16, SGD with momentum", 16, 4, 2, "SGD", {"lr": 0.01, "momentum": 0.9}
    ),
    "resnet-64": Case(
        "ResNet-18, 32x32, batch 64, SGD with momentum", 64, 2, 1, "SGD", {"lr": 0.01, "momentum": 0.9}
    ),
    "half": Case(
        "MLP 128 in float16, batch 32, AdamW", 32, 39, 4, "AdamW", {"lr": 0.001},
        scaled=True,
        # In float16 stock AdamW makes weights that are not numbers: its epsilon is 0 there.
        peers=("torch eager bfloat16", "torch.compile bfloat16", "torch eager float32", "torch eager float32 1 thread"),
    ),
}  # fmt: skip


def build(key: str) -> Any:
    """The example's model, with the same weights in every process."""
    import torch

    torch.manual_seed(0)
    return _MODELS[key]()


def data(key: str) -> tuple[Tensors, Tensors]:
    """What is trained on, cut to whole calls, and what is tested on."""
    import torch

    torch.manual_seed(1)
    (x, y), test = _DATA[key]()
    rows = CASES[key].batch * CASES[key].steps
    return (x[:rows], y[:rows]), test


def _fashion(module: str) -> tuple[Tensors, Tensors]:
    from openipu import datasets

    train, test = (_example(module).as_dataset(*split).tensors for split in datasets.fashion_mnist())
    return train, test


def _rows() -> tuple[Tensors, Tensors]:
    from openipu import datasets

    train, test = datasets.mnist()
    return _as_rows(*train), _as_rows(*test)


def _as_rows(x: Any, y: Any) -> Tensors:
    import torch

    return torch.tensor(x / 255.0, dtype=torch.float32).reshape(-1, 28, 28), torch.tensor(y, dtype=torch.long)


def _noise(*shape: int) -> Callable[[], tuple[Tensors, Tensors]]:
    def make() -> tuple[Tensors, Tensors]:
        import torch

        x, y = torch.randn(640, *shape), torch.randint(0, 10, (640,))
        return (x, y), (x[:64], y[:64])

    return make


def _half() -> tuple[Tensors, Tensors]:
    from openipu import datasets

    train, test = (_example("mixed_precision").as_tensors(*split) for split in datasets.fashion_mnist())
    return train, test


def _digits() -> tuple[Tensors, Tensors]:
    batch = _example("pipelined_transformer").batch
    return batch(CASES["transformer"].batch * CASES["transformer"].steps), batch(1000)


def _sorter() -> Any:
    import poptorch

    model = _example("pipelined_transformer").Sorter()
    # As the example does; stock PyTorch takes no notice.
    for number, layer in enumerate(model.layers, start=1):
        poptorch.BeginBlock(layer, f"layer{number}", ipu_id=number)
    return model


def _network(name: str) -> Callable[[], Any]:
    def make() -> Any:
        from benchmarks import networks

        return getattr(networks, name)()

    return make


def _example(name: str) -> Any:
    import importlib

    return importlib.import_module(f"examples.torch.{name}")


_MODELS: dict[str, Callable] = {
    "classifier": lambda: _example("fashion_mnist_cnn").Classifier(),
    "transformer": _sorter,
    "torch-lstm": lambda: _example("lstm").Reader(),
    "half": lambda: _example("mixed_precision").Network().half(),
    "torch-lstm-128": _network("lstm"),
    "torch-gru-128": _network("gru"),
    "encoder": _network("encoder"),
    "resnet": _network("resnet"),
    "resnet-64": _network("resnet"),
}
_DATA: dict[str, Callable[[], tuple[Tensors, Tensors]]] = {
    "classifier": lambda: _fashion("fashion_mnist_cnn"),
    "transformer": _digits,
    "torch-lstm": lambda: _fashion("lstm"),
    "half": _half,
    "torch-lstm-128": _rows,
    "torch-gru-128": _rows,
    "encoder": _noise(64, 128),
    "resnet": _noise(3, 32, 32),
    "resnet-64": _noise(3, 32, 32),
}
