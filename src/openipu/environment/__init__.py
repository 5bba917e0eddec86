"""Every environment variable openipu reads, declared and parsed in one place; `docs/environment.md` is made from it."""

from openipu.environment.engine import poplar_engine_options, warn_of_unknown_keys
from openipu.environment.flags import SYNTHETIC_DATA_CATEGORIES, PoplarFlags
from openipu.environment.poptorch import (
    poptorch_cache_dir,
    poptorch_default_options,
    poptorch_ipu_model,
    poptorch_ipu_model_version,
    poptorch_waits_for_ipu,
)
from openipu.environment.system import (
    cache_dir,
    config_dir,
    runtime_dir,
    system_choice,
    system_name,
    tf_xla_flags,
    use_sample_datasets,
    xla_flags,
)
from openipu.environment.talk import (
    log_destination,
    log_level,
    poptorch_log_destination,
    poptorch_log_level,
    progress,
    quiet_tensorflow,
)
from openipu.environment.tensorflow import legacy_keras, poplar_flags, running_on_ipu_model
from openipu.environment.variable import for_child, integer, unknown_names

__all__ = [
    "SYNTHETIC_DATA_CATEGORIES",
    "PoplarFlags",
    "cache_dir",
    "config_dir",
    "for_child",
    "integer",
    "legacy_keras",
    "log_destination",
    "log_level",
    "poplar_engine_options",
    "poplar_flags",
    "poptorch_cache_dir",
    "poptorch_default_options",
    "poptorch_ipu_model",
    "poptorch_ipu_model_version",
    "poptorch_log_destination",
    "poptorch_log_level",
    "poptorch_waits_for_ipu",
    "progress",
    "quiet_tensorflow",
    "running_on_ipu_model",
    "runtime_dir",
    "system_choice",
    "system_name",
    "tf_xla_flags",
    "unknown_names",
    "use_sample_datasets",
    "warn_of_unknown_keys",
    "xla_flags",
]
