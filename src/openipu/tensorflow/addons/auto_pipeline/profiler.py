"""Takes the profile of one layer: its training step alone is traced, priced, and written as a report."""

import copy
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

from openipu import hardware, model
from openipu.report.document import Origin, document
from openipu.report.writing import PROFILE, write
from openipu.tensorflow.addons.auto_pipeline.keras_utils import get_assignment_layer_type, node_of
from openipu.tensorflow.configuration import devices
from openipu.tensorflow.configuration.ipu_options import options_of
from openipu.tensorflow.ipu.config import DeviceConnectionType, IPUConfig
from openipu.tensorflow.ipu.ipu_strategy import IPUStrategyV1
from openipu.tensorflow.keras.stages import alone


class ReportHelper:
    """A folder for reports; one that is made for the occasion is deleted with this object.

    Args:
      directory: the folder; a temporary one by default.
    """

    def __init__(self, directory: Any = None) -> None:
        temporary = directory is None
        self.directory = Path(tempfile.mkdtemp(prefix="openipu-profiles-") if temporary else directory)
        if temporary:
            weakref.finalize(self, shutil.rmtree, self.directory, ignore_errors=True)

    def find_reports(self) -> list[str]:
        """The profiles in the folder."""
        return sorted(str(path) for path in self.directory.glob(f"*/{PROFILE}"))

    def clear_reports(self) -> None:
        """Delete the profiles in the folder."""
        for path in self.find_reports():
            shutil.rmtree(Path(path).parent)


def create_strategy(n_ipu: int, report_helper: Any, compile_only: bool = True, cfg: Any = None) -> IPUStrategyV1:
    """Configure the system for so many IPUs, with reports of every program, and make a strategy.

    Args:
      n_ipu: number of IPUs.
      report_helper: a `ReportHelper`, or the path of a folder; None for no reports.
      compile_only: whether to attach to no IPU before a program runs.
      cfg: what else to configure; it is not changed.
    """
    config = IPUConfig() if cfg is None else copy.deepcopy(cfg)
    config.auto_select_ipus = n_ipu
    if compile_only:
        config.device_connection.type = DeviceConnectionType.ON_DEMAND
    if report_helper is not None:
        wishes = {"autoReport.all": "true", "autoReport.directory": str(directory_of(report_helper))}
        config.compilation_poplar_options = {**config.compilation_poplar_options, **wishes}
    config.configure_ipu_system()
    return IPUStrategyV1()


def profile_layer_from_assignment(assignment: Any, batch_size: int, strategy: Any, report_helper: Any) -> str:
    """Write the profile of one layer.

    Args:
      assignment: one entry of `get_pipeline_stage_assignment` of a built model.
      batch_size: the micro-batch.
      strategy: that the model was made in.
      report_helper: a `ReportHelper`, or the path of a folder.

    Returns:
      The path of the profile, which `pva.openReport` reads.
    """
    return profile_layer(assignment, batch_size, strategy, report_helper, devices.active_config())


def profile_layer(assignment: Any, batch_size: int, strategy: Any, report_helper: Any, config: Any) -> str:
    """The same, with the options of a configuration that need not be active."""
    with strategy.scope():
        program = alone.program_of(node_of(assignment), batch_size)
    target, options = hardware.current_system().target, options_of(config, pipelined=True)
    estimate = model.estimate(program, alone.PLAN, target, options)
    inputs = [(slot.name, slot.shape, slot.dtype.name) for slot in program.batch]
    folder = directory_of(report_helper) / get_assignment_layer_type(assignment, batch_size)
    write(folder, document(estimate, Origin(inputs=inputs)))
    return str(folder / PROFILE)


def directory_of(report_helper: Any) -> Path:
    """The folder of reports."""
    return Path(getattr(report_helper, "directory", report_helper))
