"""What to change when a program needs more memory than an IPU has, with the predicted effect of each change."""

from collections.abc import Iterator

import attrs

from openipu.model.captured import Traced, trace
from openipu.model.estimate import Category, Estimate, Suggestion
from openipu.model.options import Options, Recompute
from openipu.model.predict import estimate
from openipu.model.rescaling import rescaled
from openipu.program import Plan, Program

_LOW = 0.2
_CODE = (Category.CODE, Category.EXCHANGE)

_HOW = {
    "recomputation": "IPUConfig.allow_recompute = True / pipelined execution or recomputationCheckpoint in PopTorch",
    "optimizer state in streaming memory": "offload_weight_update_variables=True / "
    "options.TensorLocations.setOptimizerLocation(TensorLocationSettings().useOnChipStorage(False))",
    "sharded optimizer state": "replicated_optimizer_state_sharding=True / "
    "options.TensorLocations.setOptimizerLocation(TensorLocationSettings().useReplicatedTensorSharding(True))",
    "less memory for temporaries of products": "IPUConfig.matmuls.poplar_options and convolutions.poplar_options with "
    "'availableMemoryProportion': '0.2' / options.setAvailableMemoryProportion({'IPU0': 0.2})",
    "half the micro-batch": "a smaller batch size, with twice the gradient accumulation",
    "float16": "float16 weights and activations: a Keras policy / model.half()",
    "twice the IPUs for one replica": "more pipeline stages: set_pipeline_stage_assignment / poptorch.BeginBlock",
}


def suggestions(made: Estimate, program: Program, traced: Traced | None = None) -> tuple[Suggestion, ...]:
    """What would make a program need less memory, best first.

    Args:
      made: its estimate.
      program: what was estimated.
      traced: the program, if it was traced already.
    """
    traced = traced or trace(program, made.plan)
    found = [*_options(made, program, traced), *_halved(made, traced), *_scaled(made)]
    helpful = [one for one in found if one.saves > 0.01 * made.worst.total]
    return tuple(sorted(helpful, key=lambda one: (not one.fits, -one.saves)))


def _options(made: Estimate, program: Program, traced: Traced) -> Iterator[Suggestion]:
    for option, changed in _alternatives(made.options, made.plan, program):
        other = estimate(program, made.plan, made.target, changed, traced)
        yield Suggestion(
            option=option,
            how=_HOW[option],
            saves=made.worst.total - other.worst.total,
            seconds=other.seconds_per_step - made.seconds_per_step,
            fits=other.fits,
        )


def _alternatives(options: Options, plan: Plan, program: Program) -> Iterator[tuple[str, Options]]:
    training = program.update is not None
    if training and options.recompute is Recompute.NONE:
        kind = Recompute.STAGE if plan.pipeline is not None else Recompute.CHEAP
        yield "recomputation", attrs.evolve(options, recompute=kind)
    if training and not options.offload_optimizer_state:
        yield "optimizer state in streaming memory", attrs.evolve(options, offload_optimizer_state=True)
    if training and plan.all_replicas > 1 and not options.shard_optimizer_state:
        yield "sharded optimizer state", attrs.evolve(options, shard_optimizer_state=True)
    if max(options.matmul_proportion, options.convolution_proportion) > _LOW:
        lower = attrs.evolve(options, matmul_proportion=_LOW, convolution_proportion=_LOW, stage_proportions=())
        yield "less memory for temporaries of products", lower


def _halved(made: Estimate, traced: Traced) -> Iterator[Suggestion]:
    """Half the micro-batch, twice as often."""
    if not made.micro_batch or made.micro_batch % 2:
        return
    half = rescaled(traced, 0.5)
    other = estimate(half.program, made.plan, made.target, made.options, half)
    yield Suggestion(
        option="half the micro-batch",
        how=_HOW["half the micro-batch"],
        saves=made.worst.total - other.worst.total,
        seconds=2 * other.seconds_per_step - made.seconds_per_step,
        fits=other.fits,
    )


def _scaled(made: Estimate) -> Iterator[Suggestion]:
    """Changes of the program itself: memory follows from what is kept for what, time is not predicted."""
    worst = made.worst
    data = worst.total - sum(worst.categories[category] for category in _CODE)
    for option in ("float16", "twice the IPUs for one replica"):
        saves = data // 2 if option != "float16" or _wide(made) else 0
        left = worst.worst_tile * (1 - saves / worst.total) if worst.total else 0.0
        yield Suggestion(option, _HOW[option], saves, None, left <= worst.limit)


def _wide(made: Estimate) -> bool:
    flops = {"float32": 0.0, "float16": 0.0, "bfloat16": 0.0}
    for operation in made.operations:
        if operation.dtype in flops:
            flops[operation.dtype] += operation.flops * operation.count
    return flops["float32"] > flops["float16"] + flops["bfloat16"]
