"""What stages take: added up from profiles of layers, or predicted for the whole pipelined program."""

import contextlib
import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pva
from openipu import hardware, model
from openipu.model import Category
from openipu.report.document import Origin, document
from openipu.report.writing import PROFILE, write
from openipu.tensorflow.addons.auto_pipeline import pva_utils
from openipu.tensorflow.addons.auto_pipeline.partition import Partition, assign, called, range_of, ranges_of
from openipu.tensorflow.addons.auto_pipeline.profiler import create_strategy
from openipu.tensorflow.addons.auto_pipeline.types import (
    AutoPipelineConfiguration,
    IPUClusterInfo,
    ModelInfo,
    RangeInfo,
)
from openipu.tensorflow.addons.auto_pipeline.types_utils import get_empty_range_info, memory_of, transfer_cycle
from openipu.tensorflow.configuration import devices
from openipu.tensorflow.configuration.system import reset_ipu_configuration
from openipu.tensorflow.executor.strategy import current
from openipu.tensorflow.keras.loop import training_program


def estimate_pipelined_model_profile(
    model_profile: ModelInfo,
    cluster_info: IPUClusterInfo,
    partition: Partition,
    config: AutoPipelineConfiguration | None = None,
) -> list[RangeInfo]:
    """What every stage would take, added up from the profiles of layers.

    Args:
      model_profile: the model.
      cluster_info: the IPUs.
      partition: the stages of its layers.
      config: the configuration; the default one if left out, as the original does.
    """
    ranges = ranges_of(model_profile, partition)
    found = []
    for stage, (first, end) in enumerate(ranges):
        info = range_of(model_profile, first, end)
        info["transfer"] = transfer_cycle(cluster_info, stage, model_profile, first, end)
        info["memory"]["total"] = memory_of(info, stage, len(ranges), config or {})
        found.append(info)
    return found


def parse_pipelined_model_profile(profile_pop: Any) -> list[RangeInfo]:
    """What every stage takes, as the profile of a pipelined program says.

    Args:
      profile_pop: the profile: its path, or the report that `pva.openReport` made of it.
    """
    report = profile_pop if isinstance(profile_pop, pva.Report) else pva.openReport(profile_pop)
    cycles, copies = pva_utils.get_pipeline_stage_cycles(report), pva_utils.stage_copies(report)
    found = []
    for stage, own, transfer in zip(report.document["stages"], cycles, copies, strict=True):
        info, ipu = get_empty_range_info(), stage["ipu"]
        info["layers"], info["cycles"], info["transfer"] = list(stage["layers"]), own, transfer
        memory = info["memory"]
        memory["total"] = pva_utils.get_total_memory(report, ipu)
        memory["parameters"] = {"": pva_utils.get_parameter_from_always_live(report, ipu)}
        code = pva_utils.get_vertex_code(report, ipu) + pva_utils.get_internal_exchange_code(report, ipu)
        memory["code"] = {"program": pva_utils.get_control_code(report, ipu), "": code}
        memory["inputs"], memory["activations"] = pva_utils.get_stash(report, ipu)
        memory["temporary"] = report.document["memory"][ipu]["categories"][Category.TEMPORARIES.value]
        found.append(info)
    return found


def profile_pipelined_model(
    create_model: Callable[..., Any],
    create_data: Callable[..., Any],
    batch_size: int,
    partition: Partition,
    ipu_cfg: Any = None,
    save_profile_path: Any = None,
) -> list[RangeInfo]:
    """What every stage takes in the training program of the whole pipelined model, which is traced but not run.

    While this runs the system is configured for one IPU a stage; then it is what it was before.

    Args:
      create_model: makes the model, in the scope of a strategy, and compiles it; called with the batch size if it takes
        an argument.
      create_data: makes the data to train with: a batched dataset, or a tuple of arrays `(x, y)`; called likewise.
      batch_size: the micro-batch.
      partition: the stages of its layers.
      ipu_cfg: what else to configure.
      save_profile_path: a folder to keep the profile in.
    """
    stages = max(partition) + 1
    with _kept_configuration():
        # A device has a power of two of IPUs.
        made_here = create_strategy(1 << (stages - 1).bit_length(), None, True, ipu_cfg)
        # Scopes of two strategies cannot be nested.
        with (current() or made_here).scope():
            made = called(create_model, batch_size)
            assign(made, partition)
            options: Any = made._ipu.options  # type: ignore[attr-defined]
            if options.pipeline_accumulation is None:
                made.set_pipelining_options(gradient_accumulation_steps_per_replica=2 * stages)
            program, plan, setting = training_program(made, called(create_data, batch_size), batch_size)
        target = hardware.current_system().target
        estimate = model.estimate(program, plan, target, setting.asked)
    inputs = [(slot.name, slot.shape, slot.dtype.name) for slot in program.batch]
    described = document(estimate, Origin(inputs=inputs))
    if save_profile_path is not None:
        path = Path(save_profile_path)
        write(path.parent if path.name == PROFILE else path, described)
    return parse_pipelined_model_profile(pva.Report(described))


@contextlib.contextmanager
def _kept_configuration() -> Iterator[None]:
    before = copy.deepcopy(devices.active_config())
    try:
        yield
    finally:
        if before is None:
            reset_ipu_configuration()
        else:
            before.configure_ipu_system()
