"""Variables of the virtual system, of folders and of data."""

from openipu.environment.variable import declare

SYSTEM = "The virtual system"
FILES = "Files and data"

_system = declare(
    "OPENIPU_SYSTEM",
    SYSTEM,
    "The IPUs that programs find on this machine.",
    "bow-pod16",
    values="a pod (`bow-pod4`, `bow-pod16`, `bow-pod64`, `mk2-pod16`, …) or a count such as `2xbow`",
)
_runtime_dir = declare(
    "OPENIPU_RUNTIME_DIR",
    SYSTEM,
    "Where processes tell each other which virtual IPUs they hold.",
    values="a directory; unset for one in the user's runtime directory",
)
_config_dir = declare(
    "OPENIPU_CONFIG_DIR",
    SYSTEM,
    "Where the settings of the virtual system are kept.",
    values="a directory; unset for one in the user's configuration directory",
)
_datasets = declare(
    "OPENIPU_DATASETS",
    FILES,
    "Whether `keras.datasets.mnist` and `fashion_mnist` answer from the embedded sample, without a network.",
    "download",
    ("download", "sample"),
)
_cache = declare(
    "OPENIPU_CACHE",
    FILES,
    "Where compiled executables are kept, for both front ends; "
    "`--executable_cache_path` and `POPTORCH_CACHE_DIR` go before it.",
    values="a directory; unset for none",
)

_xla_flags = declare(
    "XLA_FLAGS",
    FILES,
    "XLA's own; part of what a cached executable is known by. "
    "`--xla_force_host_platform_device_count=4` gives four CPU devices, so that pipeline stages overlap.",
    values="`--xla_…=…` …",
)

_tf_xla_flags = declare(
    "TF_XLA_FLAGS",
    FILES,
    "TensorFlow's own, for how it hands functions to XLA; part of what a cached executable is known by.",
    values="`--tf_xla_…=…` …",
)


def system_name() -> str:
    """The virtual system's name, which `openipu.hardware.current_system` understands."""
    return system_choice()[0]


def system_choice() -> tuple[str, str]:
    """The virtual system's name and where it comes from: OPENIPU_SYSTEM, else the user's settings, else the default."""
    if _system.is_given():
        return _system.read(), _system.name
    from openipu import settings

    if name := settings.chosen_system():
        return name, str(settings.path())
    return _system.read(), "the default"


def runtime_dir() -> str:
    """Where processes share which IPUs are held (OPENIPU_RUNTIME_DIR); empty for the default place."""
    return _runtime_dir.read()


def config_dir() -> str:
    """Where settings are kept (OPENIPU_CONFIG_DIR); empty for the default place."""
    return _config_dir.read()


def use_sample_datasets() -> bool:
    """Whether `keras.datasets` answers from the embedded sample (OPENIPU_DATASETS=sample)."""
    return _datasets.read() == "sample"


def cache_dir() -> str:
    """Where executables are cached unless a front end's variable says otherwise (OPENIPU_CACHE); empty for nowhere."""
    return _cache.read()


def xla_flags() -> str:
    """What XLA itself was told (XLA_FLAGS)."""
    return _xla_flags.read()


def tf_xla_flags() -> str:
    """What TensorFlow was told about XLA (TF_XLA_FLAGS)."""
    return _tf_xla_flags.read()
