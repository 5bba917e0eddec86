"""Predictions beside published figures, made of captured programs: the page `docs/model-accuracy.md`.

python -m tests.model.accuracy          writes the page
"""

import copy
import functools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import jax

from openipu.hardware.target import BOW, C600, MK1, MK2, Target
from openipu.model import Estimate, Options, Partials, Recompute, Traced, constants, estimate, trace
from openipu.model.rescaling import rescaled
from openipu.program import Plan
from tests.model import baseline, programs
from tests.model import kernels_traced as kernels
from tests.model.programs import Capture, Encoder

PAGE = Path(__file__).parents[2] / "docs" / "model-accuracy.md"
# Figures of programs that wait for their host: shown, and left out of the summary, as the model knows nothing of it.
HOST_BOUND = ("100 steps per execution, Bow", "64 Bow IPUs")


class Figure(NamedTuple):
    """One published figure and its prediction; `fitted` names the constants that it had a part in."""

    group: str
    name: str
    unit: str
    published: float
    predicted: float
    fitted: str = ""

    @property
    def ratio(self) -> float:
        return self.predicted / self.published

    @property
    def counted(self) -> bool:
        return not any(text in self.name for text in HOST_BOUND)


class _Program:
    """A captured program, traced once and estimated under several plans."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self._traced: Traced = trace(capture.program, capture.plan)

    def resized(self, micro: int) -> "_Program":
        """The same with another micro-batch, priced without capturing it again."""
        other = copy.copy(self)
        other._traced = rescaled(self._traced, micro / self.capture.program.batch[0].shape[0])
        other.capture = attrs.evolve(self.capture, program=other._traced.program)
        return other

    def under(self, target: Target, options: dict[str, Any] | None = None, **plan: Any) -> Estimate:
        changed: Plan = attrs.evolve(self.capture.plan, **plan)
        asked: Options = attrs.evolve(self.capture.options, **(options or {}))
        return estimate(self.capture.program, changed, target, asked, self._traced)


def kernel_figures() -> Iterator[Figure]:
    """Kernels measured on hardware."""
    clock = MK1.clock_hz / constants.HARDWARE_FACTOR
    for half, published, name in ((False, 18.9, "fp32"), (True, 58.9, "fp16.32")):
        closed = jax.make_jaxpr(lambda a, b: a @ b)(*[kernels.array(2048, 2048, half=half)] * 2)
        rate = 2 * 2048**3 / kernels.cycles(closed, MK1) * clock / 1e12
        yield Figure("kernel", f"GC2 best square {name} product [C]", "TFLOP/s", published, rate)
    closed = jax.make_jaxpr(lambda x: x.sum())(kernels.array(MK1.tiles, half=False))
    seconds = kernels.cycles(closed, MK1) / clock
    yield Figure("kernel", "GC2 sum of one fp32 per tile to a scalar [C]", "µs", 1.97, seconds * 1e6)
    yield Figure("kernel", "GC2 all tiles exchanging [C]", "TB/s", 7.68, MK1.exchange_bandwidth / 1e12)


def small_figures() -> Iterator[Figure]:
    """Small networks in float32."""
    cnn = _Program(programs.keras_training(programs.mnist_cnn, (28, 28, 1), 64, one_hot=True))
    name = "Keras MNIST CNN, batch 64"
    yield Figure(
        "small", f"{name}, 1 step per execution [K]", "ms/step", 3, cnn.under(MK2).seconds_per_step * 1e3, "E H"
    )
    whole = cnn.under(MK2, device_iterations=937).seconds_per_step
    yield Figure("small", f"{name}, 937 steps per execution [K]", "µs/step", 224, whole * 1e6, "H")
    both = cnn.under(MK2, device_iterations=468, replicas=2).seconds_per_batch
    yield Figure("small", f"{name}, 2 replicas, per batch [K]", "µs/batch", 134, both * 1e6, "H A")
    mlp = _Program(programs.keras_training(programs.mnist_mlp, (28, 28), 32, one_hot=False))
    name = "Keras MNIST MLP, batch 32"
    yield Figure(
        "small", f"{name}, 1 step per execution [B]", "ms/step", 2, mlp.under(MK2).seconds_per_step * 1e3, "E H"
    )
    many = mlp.under(BOW, device_iterations=100).seconds_per_step
    yield Figure("small", f"{name}, 100 steps per execution, Bow [A]", "µs/step", 270, many * 1e6)
    yield from _loading_figures()


def _loading_figures() -> Iterator[Figure]:
    import torch

    import poptorch

    options = poptorch.Options().deviceIterations(50)
    inputs = torch.zeros(16 * 50, 1, 128, 128), torch.zeros(16 * 50, dtype=torch.long)
    optimizer = lambda parameters: poptorch.optim.SGD(parameters, lr=0.01, momentum=0.9)  # noqa: E731
    net = _Program(programs.poptorch_training(programs.loading_tutorial(), inputs, optimizer, options))
    synthetic = {"synthetic_data": True}
    name = "PopTorch data-loading network, batch 16"
    alone = net.under(MK2, synthetic).seconds_per_step
    yield Figure("small", f"{name}, synthetic [T]", "µs/step", 16e6 / 46739.05, alone * 1e6)
    yield Figure(
        "small", f"{name}, real data [T]", "µs/step", 16e6 / 17956.52, net.under(MK2).seconds_per_step * 1e6, "H"
    )
    both = net.under(MK2, synthetic, replicas=2).seconds_per_step
    yield Figure("small", f"{name}, synthetic, 2 replicas [T]", "µs/step", 32e6 / 46384.23, both * 1e6, "A")


# Published runs: system, kind of IPU, source, micro-batch, accumulated, replicas, images per second, fitted.
_RESNETS = (
    ("POD16 Mk2", MK2, "M1.1", 20, 10, 16, 28917, "R"),
    ("POD128 Mk2", MK2, "M1.1", 20, 2, 128, 169702, ""),
    ("POD256 Mk2", MK2, "M1.1", 20, 2, 256, 299790, ""),
    ("Bow Pod16", BOW, "M2.0", 22, 10, 16, 42134, "R"),
    ("Bow Pod64", BOW, "M2.0", 20, 4, 64, 143716, ""),
    ("Bow Pod128", BOW, "M2.0", 20, 2, 128, 226823, ""),
    ("Bow Pod256", BOW, "M2.0", 20, 2, 256, 413574, ""),
    ("PopTorch 4 Bow IPUs", BOW, "A", 18, 228, 4, 9960, ""),
    ("PopTorch 16 Bow IPUs", BOW, "A", 18, 57, 16, 39057, ""),
    ("PopTorch 64 Bow IPUs", BOW, "A", 18, 14, 64, 114465, ""),
)


@functools.cache
def _resnet(micro: int) -> _Program:
    """Training of ResNet-50; the program of one micro-batch gives that of the others, as in plans."""
    if micro != 20:
        return _resnet(20).resized(micro)
    import torch

    import poptorch

    options = poptorch.Options()
    options.Precision.setPartialsType(torch.half)
    options.setAvailableMemoryProportion({"IPU0": 0.15})
    optimizer = lambda parameters: poptorch.optim.SGD(parameters, lr=0.1, momentum=0.9)  # noqa: E731
    inputs = torch.zeros(micro, 3, 224, 224, dtype=torch.half), torch.zeros(micro, dtype=torch.long)
    return _Program(programs.poptorch_training(programs.resnet50(training=True), inputs, optimizer, options))


def resnet_figures() -> Iterator[Figure]:
    """ResNet-50 in float16, one IPU per replica, kept residuals, as the published settings say."""
    import torch

    import poptorch

    # Images come in while the IPU computes, from several processes of the host, and executions are long.
    asked = {"overlap_host": True, "shared_stream": False, "launch_seconds": 0.0}
    for system, target, source, micro, accumulation, replicas, published, fitted in _RESNETS:
        plan = {"device_iterations": accumulation, "gradient_accumulation": accumulation, "replicas": replicas}
        made = _resnet(micro).under(target, asked, **plan)
        name = f"{system}, micro-batch {micro}, {accumulation} accumulated [{source}]"
        assert made.throughput is not None
        yield Figure("ResNet-50", name, "img/s", published, made.throughput, fitted)
    options = poptorch.Options()
    options.Precision.setPartialsType(torch.half)
    network, images = programs.resnet50(training=False), torch.zeros(32, 3, 224, 224, dtype=torch.half)
    inference = _Program(programs.poptorch_inference(network, (images,), options))
    for batch, published in ((4, 7062), (32, 13542)):
        made = inference.resized(batch).under(C600, {**asked, "synthetic_data": True})
        assert made.throughput is not None
        yield Figure("ResNet-50", f"C600 inference, batch {batch} [BM]", "img/s", published, made.throughput)


# Published runs: name, source, encoder, kind of IPU, accumulated, replicas, memory proportion, sequences in a pack,
# seconds of host work in an update, sequences per second, fitted.
_POPART_UPDATE = 0.15
_BERTS = (
    ("Bow Pod16 SL512 packed, 2x8 IPUs, micro-batch 3, 256 accumulated", "M2.0",
     Encoder((4, 7, 7, 7, 7, 7, 7, 2), 1024, 16, 512, 3), BOW, 256, 2, 0.3, 2, _POPART_UPDATE, 2288, "U"),
    ("Bow Pod64 SL512 packed, 8x8 IPUs, micro-batch 3, 96 accumulated", "M2.0",
     Encoder((4, 7, 7, 7, 7, 7, 7, 2), 1024, 16, 512, 3), BOW, 96, 8, 0.6, 2, _POPART_UPDATE, 7168, "U"),
    ("Bow Pod128 SL512 packed, 16x8 IPUs, micro-batch 3, 64 accumulated", "M2.0",
     Encoder((4, 7, 7, 7, 7, 7, 7, 2), 1024, 16, 512, 3), BOW, 64, 16, 0.6, 2, _POPART_UPDATE, 12945, "U"),
    ("POD16 Mk2 SL512 packed, 4x4 IPUs, micro-batch 2, 192 accumulated", "M1.1",
     Encoder((9, 13, 13, 13), 1024, 16, 512, 2), MK2, 192, 4, 0.23, 2, _POPART_UPDATE, 1526, ""),
    ("Bow Pod16 PyTorch SL128 packed, 4x4 IPUs, micro-batch 8", "G",
     Encoder((6, 14, 14, 14), 1024, 16, 128, 8), BOW, 1497, 4, 0.25, 1.17, 0.0, 5600, ""),
    ("Bow Pod16 PyTorch SL512 packed, 4x4 IPUs, micro-batch 2", "G",
     Encoder((6, 14, 14, 14), 1024, 16, 512, 2), BOW, 512, 4, 0.15, 2, 0.0, 1973, ""),
    ("base, Bow Pod16 SL512, 4x4 IPUs, layers 0/4/4/4, micro-batch 8", "G",
     Encoder((8, 8, 8), 768, 12, 512, 8), BOW, 512, 4, 0.2, 1, 0.0, 3656, ""),
)  # fmt: skip


@functools.cache
def _bert(encoder: Encoder) -> _Program:
    """A pipeline of BERT's encoder layers, traced once."""
    return _Program(encoder.capture(1, 1, Options(partials=Partials.HALF, recompute=Recompute.CHECKPOINTS)))


def bert_figures() -> Iterator[Figure]:
    """Pipelines of BERT's encoder layers; the slowest stage is one of them."""
    for name, source, encoder, target, accumulation, replicas, share, pack, update, published, fitted in _BERTS:
        asked = {
            "matmul_proportion": share, "overlap_host": True, "collective_buffer": 2**24, "launch_seconds": 0.0,
            "shard_optimizer_state": True,
        }  # fmt: skip
        plan = {"device_iterations": accumulation, "gradient_accumulation": accumulation, "replicas": replicas}
        made = _bert(encoder).under(target, asked, **plan)
        seconds = made.seconds_per_step + update / accumulation
        rate = replicas * encoder.micro_batch * pack / seconds
        yield Figure("BERT", f"{name} [{source}]", "seq/s", published, rate, fitted)


GROUPS: dict[str, Callable[[], Iterator[Figure]]] = {
    "kernel": kernel_figures,
    "small": small_figures,
    "ResNet-50": resnet_figures,
    "BERT": bert_figures,
}


class Fitting(NamedTuple):
    """A published setting that fitted into the memory of its IPUs, and what it is predicted to take."""

    name: str
    low: int
    total: int
    high: int
    capacity: int


def fittings() -> Iterator[Fitting]:
    """Settings that are known to have fitted."""
    for micro in (18, 22):
        plan = {"device_iterations": 10, "gradient_accumulation": 10}
        made = _resnet(micro).under(BOW, **plan)
        yield _fitting(f"ResNet-50 training, micro-batch {micro}, residuals kept, proportion 0.15", made)
    for sequence, micro, share in ((128, 8, 0.25), (512, 2, 0.15)):
        asked = {"matmul_proportion": share, "offload_optimizer_state": True, "collective_buffer": 2**24}
        plan = {"device_iterations": 64, "gradient_accumulation": 64, "replicas": 4}
        made = _bert(Encoder((6, 14, 14, 14), 1024, 16, sequence, micro)).under(BOW, asked, **plan)
        yield _fitting(f"BERT-Large SL{sequence}, micro-batch {micro}, layers 3/7/7/7 on 4 IPUs", made)


def _fitting(name: str, made: Estimate) -> Fitting:
    worst = max(made.memory, key=lambda memory: memory.total)
    return Fitting(name, worst.low, worst.total, worst.high, worst.capacity)


class Summary(NamedTuple):
    """How good a set of predictions is."""

    count: int
    mean: float
    spread: float
    low: float
    high: float
    within: int

    @property
    def share(self) -> float:
        return self.within / self.count


def summary(ratios: Sequence[float]) -> Summary:
    """Geometric mean and spread of predicted over published, and how many are within 25 %."""
    logs = [math.log(ratio) for ratio in ratios]
    return Summary(
        len(ratios), math.exp(statistics.mean(logs)), math.exp(statistics.pstdev(logs)), min(ratios), max(ratios),
        sum(0.8 <= ratio <= 1.25 for ratio in ratios),
    )  # fmt: skip


@attrs.frozen
class Accuracy:
    """Everything the page shows."""

    figures: tuple[Figure, ...]
    kernels: dict[tuple[str, str], Summary]
    memory: dict[str, Summary]
    fitting: tuple["Fitting", ...]
    convolutions: Summary


def accuracy() -> Accuracy:
    """Makes all predictions."""
    found: dict[tuple[str, str], list[float]] = {}
    for target in (MK2, MK1):
        for row in baseline.ipu_model(target):
            found.setdefault((target.name, row.group), []).append(row.ratio)
    figures = tuple(figure for make in GROUPS.values() for figure in make())
    measured = summary([row.ratio for row in baseline.measured_convolutions()])
    memory = {target.name: summary([row.ratio for row in baseline.product_memory(target)]) for target in (MK2, MK1)}
    kernels = {key: summary(ratios) for key, ratios in found.items()}
    return Accuracy(figures, kernels, memory, tuple(fittings()), measured)


def page(made: Accuracy) -> str:
    """The page as Markdown."""
    counted = summary([figure.ratio for figure in made.figures if figure.counted])
    every = summary([ratio.ratio for ratio in made.figures])
    lines = [
        "# How good the predictions are",
        "",
        "Generated by `python -m tests.model.accuracy`; a test checks that it is current. All predictions are made of "
        "captured programs: Keras and PopTorch models as users write them, kernels and BERT's encoder as traced JAX.",
        "",
        f"{every.count} published figures. Without those of programs that wait for their host (marked *), the "
        f"geometric mean of predicted over published is {counted.mean:.2f}, the spread {counted.spread:.2f}, and "
        f"{counted.within} of {counted.count} are within 25 %. With them: {every.mean:.2f}, "
        f"{every.spread:.2f}, {every.within} of {every.count}.",
        "",
        "Sources: C = microbenchmarks of the GC2 (arXiv:1912.03413), K = Graphcore's Keras tutorial, T = its PopTorch "
        "data-loading tutorial, M = MLPerf training results, G = Graphcore's performance page, A = ALCF's user guide, "
        "BM = ByteMLPerf, B = without a traceable page. Fitted: constants that a figure had a part in (E launch, H "
        "host streams, A and R exchange between replicas, U host work of an update, which only these rows add).",
        "",
        "| group | figure | unit | published | predicted | ratio | fitted |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in made.figures:
        star = "" if one.counted else " *"
        lines.append(
            f"| {one.group} | {one.name}{star} | {one.unit} | {_number(one.published)} | {_number(one.predicted)} "
            f"| {one.ratio:.2f} | {one.fitted} |"
        )
    lines += [
        "",
        "## Kernels",
        "",
        "Cycles against Graphcore's IPU Model (PopLibs' published benchmark results), planned cycles without the "
        "factor of hardware. The file is in `tests/model/data`.",
        "",
        "| IPU | kernels | number | geometric mean | spread | range | within 25 % |",
        "|---|---|---|---|---|---|---|",
    ]
    for (target, group), found in made.kernels.items():
        lines.append(_summary(f"{target} | {group}", found))
    lines += [
        _summary("mk1 (measured) | convolutions, TFLOP/s [C]", made.convolutions),
        "",
        "## Memory",
        "",
        "Total bytes of matrix products against the IPU Model: when the same split is chosen they agree to a few per "
        "cent, so the choice of split is the uncertainty, and an estimate gives a range.",
        "",
        "| IPU | number | geometric mean | spread | range | within 25 % |",
        "|---|---|---|---|---|---|",
        *(_summary(target, found) for target, found in made.memory.items()),
        "",
        "Settings that are published, so they fitted; bytes of the fullest IPU.",
        "",
        "| setting | predicted, MiB | range | of |",
        "|---|---|---|---|",
        *(_fits(one) for one in made.fitting),
        "",
        "## Where it misses",
        "",
        "- Programs that wait for their host: elements of a `tf.data` pipeline, JPEG files. Only the link is modelled.",
        "- More than 16 replicas: exchange between them has no term for hops and racks, and comes out too fast.",
        "- 3x3 convolutions on images of 3 to 5 pixels (up to twice too fast); GRUs.",
        "- Mk1 products that fill most of its memory: up to 1.7 times slower than predicted.",
        "",
    ]
    return "\n".join(lines)


def _summary(title: str, found: Summary) -> str:
    return (
        f"| {title} | {found.count} | {found.mean:.2f} | {found.spread:.2f} | {found.low:.2f} to {found.high:.2f} "
        f"| {found.within} |"
    )


def _fits(one: Fitting) -> str:
    low, total, high, capacity = (f"{size / 2**20:,.0f}" for size in one[1:])
    return f"| {one.name} | {total} | {low} to {high} | {capacity} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1e3 else f"{value:.3g}"


if __name__ == "__main__":
    PAGE.write_text(page(accuracy()))
