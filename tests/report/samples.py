"""Estimates made up for tests of what shows them: the shape is real, the numbers follow no model."""

import numpy as np

from openipu.hardware import BOW
from openipu.model import (
    Category,
    Constant,
    Contributor,
    Estimate,
    IpuMemory,
    LivePoint,
    Operation,
    OperationKind,
    Options,
    Pass,
    Shares,
    Stage,
    Suggestion,
)
from openipu.program import Kind, Pipeline, Plan, Schedule, timeline
from openipu.program.timing import spans
from openipu.report.document import Origin, document
from openipu.report.measured import Measured

KINDS = (OperationKind.CONVOLUTION, OperationKind.ELEMENTWISE, OperationKind.REDUCTION, OperationKind.MATMUL)


def operations(layers, stages, slower=1.0):
    made = []
    for phase in (Pass.FORWARD, Pass.BACKWARD, Pass.UPDATE):
        order = range(layers) if phase is Pass.FORWARD else reversed(range(layers))
        for layer in order:
            for number, kind in enumerate(KINDS[:2] if phase is Pass.UPDATE else KINDS):
                size = 4096 * (1 + layer) * (1 + number)
                cycles = slower * (1500.0 + 37 * layer + 900 * number) * (2 if phase is Pass.BACKWARD else 1)
                made.append(
                    Operation(
                        name=f"block_{layer // 4}/conv_{layer}/{kind.value.replace(' ', '_')}.{len(made)}",
                        layer=f"model/block_{layer // 4}/conv_{layer}",
                        kind=kind,
                        stage=layer * stages // layers,
                        phase=phase,
                        count=1,
                        flops=2.0e6 * (1 + layer) if kind in (KINDS[0], KINDS[3]) else 0.0,
                        bytes=3 * size,
                        shape=(32, 28, 28, 16 * (1 + layer)),
                        dtype="float16" if number % 2 else "float32",
                        cycles=cycles,
                        exchange_cycles=cycles * 0.3,
                        temporary_bytes=size * 40,
                        code_bytes=2048,
                    )
                )
    return tuple(made)


def memory(ipu, kernels, tiles, filled):
    rng = np.random.default_rng(ipu)
    limit = BOW.bytes_per_tile
    always = (limit * filled * 0.62 + rng.integers(0, 24_000, tiles)).astype(np.int64)
    temporary = (limit * filled * 0.28 + rng.integers(0, 40_000, tiles)).astype(np.int64)
    shares = {
        Category.WEIGHTS: 0.3, Category.OPTIMIZER_STATE: 0.15, Category.ACCUMULATORS: 0.15, Category.STASH: 0.2,
        Category.CODE: 0.12, Category.EXCHANGE: 0.05, Category.INPUT_OUTPUT: 0.02, Category.CONSTANTS: 0.005,
        Category.STATE: 0.005,
    }  # fmt: skip
    base, peak = int(always.sum()), int(temporary.sum())
    categories = {category: int(base * share) for category, share in shares.items()} | {Category.TEMPORARIES: peak}
    half = len(kernels) / 2
    points = tuple(
        LivePoint(k.name, k.phase, int(peak * max(0.05, 1 - abs(i - half) / half))) for i, k in enumerate(kernels)
    )
    layers = list(dict.fromkeys(k.layer for k in kernels))
    contributors = tuple(
        Contributor(layer, {Category.WEIGHTS: 90_000 * (1 + i), Category.TEMPORARIES: 30_000 * (1 + i)})
        for i, layer in reversed(list(enumerate(layers)))
    )
    total = base + peak
    return IpuMemory(
        ipu, categories, always, temporary, points, contributors, 0, limit, int(total * 0.9), int(total * 1.15)
    )


def sample(name="course CNN", stages=2, replicas=2, accumulation=8, layers=12, filled=0.8, slower=1.0):
    """An estimate of a training program."""
    pipeline = Pipeline(stages, Schedule.GROUPED, tuple(range(stages))) if stages > 1 else None
    plan = Plan(
        device_iterations=4 * accumulation, replicas=replicas, gradient_accumulation=accumulation, pipeline=pipeline
    )
    kernels = operations(layers, stages, slower)
    parts = []
    for index in range(stages):
        mine = [k for k in kernels if k.stage == index]
        forward, backward, update = (
            BOW.seconds(sum(k.total_cycles for k in mine if k.phase is phase)) for phase in Pass
        )
        flops = sum(k.flops for k in mine if k.phase is not Pass.UPDATE)
        names = tuple(dict.fromkeys(k.layer for k in mine))
        parts.append(Stage(index, index, names, forward, backward, update, 1e-6 if pipeline else 0.0, flops))
    line = timeline(Schedule.GROUPED, stages, accumulation, True) if pipeline else None
    durations = {(p.index, Kind.FORWARD): p.forward for p in parts}
    durations |= {(p.index, Kind.BACKWARD): p.backward for p in parts}
    durations |= {(p.index, Kind.UPDATE): p.update for p in parts}
    busy = max(p.forward + p.backward for p in parts)
    shares = Shares(
        busy * 0.7, busy * 0.3, 2e-6 if pipeline else 0.0, busy * (stages - 1) / accumulation,
        4e-6 if replicas > 1 else 0.0, max(p.update for p in parts) / accumulation, 0.0, 9e-6, 5e-6,
    )  # fmt: skip
    return Estimate(
        program=name,
        target=BOW,
        plan=plan,
        options=Options(),
        micro_batch=32,
        stages=tuple(parts),
        operations=kernels,
        memory=tuple(memory(p.index, [k for k in kernels if k.stage == p.index], BOW.tiles, filled) for p in parts),
        shares=shares,
        timeline=line,
        spans=spans(line, durations) if line else (),
        warnings=("One loop has an unknown length; its body is counted once.",),
        constants=(
            Constant("hardware factor", 1.15, "", "measured convolutions", "157 convolutions of a GC2"),
            Constant("exchange", 4.0, "bytes per cycle", "hardware reference, section 1"),
        ),
    )


SUGGESTIONS = (
    Suggestion("recomputation", "allow_recompute=True / recomputationCheckpoint", 48 << 20, 3.1e-5, True),
    Suggestion("half precision", "mixed_float16 / model.half()", 90 << 20, -2.0e-5, False),
)


def sample_document(measured=True, suggestions=(), training=True, **arguments):
    """A report as JSON."""
    times = Measured(compile_seconds=2.5, samples=2048, seconds=[0.9, 0.41, 0.4, 0.42], executions=4)
    inputs = (("images", (32, 28, 28, 1), "float32"), ("labels", (32,), "int32"))
    origin = Origin("python train.py", training, inputs, {"autoReport.all": "true"})
    return document(sample(**arguments), origin, times if measured else None, suggestions)
