"""The PyTorch models that are measured: those of the examples, with their settings."""

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


def _example(name: str) -> Any:
    import importlib

    return importlib.import_module(f"examples.torch.{name}")


_MODELS: dict[str, Callable] = {
    "classifier": lambda: _example("fashion_mnist_cnn").Classifier(),
    "transformer": _sorter,
    "torch-lstm": lambda: _example("lstm").Reader(),
    "half": lambda: _example("mixed_precision").Network().half(),
}
_DATA: dict[str, Callable[[], tuple[Tensors, Tensors]]] = {
    "classifier": lambda: _fashion("fashion_mnist_cnn"),
    "transformer": _digits,
    "torch-lstm": lambda: _fashion("lstm"),
    "half": _half,
}
