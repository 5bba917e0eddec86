"""Measure one PyTorch model with PopTorch or with a peer, in a process of its own, and print the figures as JSON."""

import json
import math
import resource
import sys
import time
from collections.abc import Callable

import torch

from benchmarks import torch_models
from benchmarks.torch_models import Case

EPOCHS = 6


def poptorch_epochs(case: Case, model: torch.nn.Module, dataset: torch.utils.data.Dataset) -> tuple[Callable, Callable]:
    """What trains an epoch on virtual IPUs, and what brings the weights home."""
    import poptorch

    options = poptorch.Options().deviceIterations(case.iterations).replicationFactor(case.replicas)
    options.Training.gradientAccumulation(case.accumulation)
    options.showCompilationProgressBar(False)
    loader = poptorch.DataLoader(options, dataset, batch_size=case.micro_batch, drop_last=True)
    more = {}
    if case.scaled:
        wide = ("first_order_momentum_accum_type", "second_order_momentum_accum_type")
        more = {"loss_scaling": 128.0, **dict.fromkeys(wide, torch.float32)}
    optimizer = getattr(poptorch.optim, case.optimizer)(model.parameters(), **case.rates, **more)
    training = poptorch.trainingModel(model, options, optimizer)

    def epoch(after_call: Callable[[], None]) -> None:
        for inputs, labels in loader:
            training(inputs, labels)
            after_call()

    return epoch, training.detachFromDevice


def torch_epochs(
    case: Case, model: torch.nn.Module, dataset: torch.utils.data.Dataset, compiled: bool
) -> tuple[Callable, Callable]:
    """What trains an epoch as a program for stock PyTorch would."""
    loader = torch.utils.data.DataLoader(dataset, batch_size=case.batch, drop_last=True)
    optimizer = getattr(torch.optim, case.optimizer)(model.parameters(), **case.rates)
    forward = torch.compile(model) if compiled else model

    def epoch(after_call: Callable[[], None]) -> None:
        for inputs, labels in loader:
            optimizer.zero_grad()
            _, loss = forward(inputs, labels)
            loss.backward()
            optimizer.step()
            after_call()

    return epoch, lambda: None


def quality(model: torch.nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
    """The loss and the accuracy of a model as stock PyTorch computes them."""
    with torch.no_grad():
        scores = model.eval()(inputs).float().flatten(0, -2)
    labels = labels.flatten()
    loss = torch.nn.functional.cross_entropy(scores, labels)
    return float(loss), float((scores.argmax(dim=1) == labels).float().mean())


def main(key: str, peer: str) -> None:
    case = torch_models.CASES[key]
    train, test = torch_models.data(key)
    if peer.endswith("1 thread"):
        torch.set_num_threads(1)
    dtype = next((getattr(torch, word) for word in peer.split() if "float" in word), None)
    if dtype is not None:
        train, test = ((x.to(dtype), y) for x, y in (train, test))
    started = time.perf_counter()
    model = torch_models.build(key)
    if dtype is not None:
        model = model.to(dtype)
    dataset = torch.utils.data.TensorDataset(*train)
    if peer == "openipu":
        epoch, finish = poptorch_epochs(case, model, dataset)
    else:
        epoch, finish = torch_epochs(case, model, dataset, peer.startswith("torch.compile"))

    moments: list[float] = []
    epochs: list[float] = []
    work: list[float] = []
    for _ in range(EPOCHS):
        begin, busy = time.perf_counter(), time.process_time()
        epoch(lambda: moments or moments.append(time.perf_counter() - started))
        epochs.append(time.perf_counter() - begin)
        work.append(time.process_time() - busy)
    finish()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    loss, _ = quality(model, *train)
    _, accuracy = quality(model, *test)
    print(
        json.dumps(
            {
                "us_per_step": min(epochs[1:]) / case.steps * 1e6,
                "cpu_us_per_step": min(work[1:]) / case.steps * 1e6,
                "first_execution_s": moments[0],
                "peak_rss_mib": peak,
                "loss": loss if math.isfinite(loss) else None,
                "accuracy": accuracy,
            }
        )
    )


def reason(error: BaseException) -> str:
    """What an error says first, and of which kind it is."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"[:300]


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as error:
        # A machine without a C++ compiler has no torch.compile; everything else must work.
        if not sys.argv[-1].startswith("torch.compile"):
            raise
        print(json.dumps({"unavailable": reason(error)}))
