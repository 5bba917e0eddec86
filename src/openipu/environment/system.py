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
_memory = declare(
    "OPENIPU_MEMORY",
    SYSTEM,
    "What is done about programs that would not fit into the memory of a real IPU: a warning with advice, an error, or "
    "nothing.",
    "warn",
    ("warn", "error", "off"),
)
_datasets = declare(
    "OPENIPU_DATASETS",
    FILES,
    "Whether `keras.datasets` and `torchvision.datasets` give sample data in the lengths of the originals, without a "
    "network: see below.",
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
_cache_owners = declare(
    "OPENIPU_CACHE_OWNERS",
    FILES,
    "Whose cached executables are trusted, beside the user's own and root's: for a folder that somebody shares.",
    values="names of users, separated by commas",
)
_cache_wait = declare(
    "OPENIPU_CACHE_WAIT",
    FILES,
    "How long to wait while another process compiles the same program for the cache, in seconds.",
    "600",
    values="a number of seconds",
)
_check_indices = declare(
    "OPENIPU_CHECK_INDICES",
    FILES,
    "Which labels and indices are checked to be in range before they go to the device: none, those of arrays and of "
    "the first executions, or all.",
    "first",
    ("off", "first", "all"),
)

_plan = declare(
    "OPENIPU_PLAN",
    FILES,
    "What `openipu plan` hands to the program it plans: the first training program is not run but planned.",
    values="a file with the request; unset for none",
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


_attach = declare(
    "OPENIPU_ATTACH",
    SYSTEM,
    "Whether programs hold the IPUs they use; off for `poprun --offline-mode`, where others' IPUs do not matter.",
    "on",
    ("on", "off"),
)


def attaches() -> bool:
    """Whether programs hold the IPUs they use (OPENIPU_ATTACH)."""
    return _attach.read() == "on"


def virtual_system() -> tuple[str, bool]:
    """The virtual system's name (OPENIPU_SYSTEM) and whether it was given; `settings.system_choice` decides."""
    return _system.read(), _system.is_given()


def runtime_dir() -> str:
    """Where processes share which IPUs are held (OPENIPU_RUNTIME_DIR); empty for the default place."""
    return _runtime_dir.read()


def config_dir() -> str:
    """Where settings are kept (OPENIPU_CONFIG_DIR); empty for the default place."""
    return _config_dir.read()


def use_sample_datasets() -> bool:
    """Whether `keras.datasets` and `torchvision.datasets` give sample data (OPENIPU_DATASETS=sample)."""
    return _datasets.read() == "sample"


def memory() -> str:
    """What is done about programs that would not fit on a real IPU: "warn", "error" or "off"."""
    return _memory.read()


def cache_dir() -> str:
    """Where executables are cached unless a front end's variable says otherwise (OPENIPU_CACHE); empty for nowhere."""
    return _cache.read()


def trusted_owners() -> list[str]:
    """Users whose cached executables are trusted (OPENIPU_CACHE_OWNERS), by name or number."""
    return [name.strip() for name in _cache_owners.read().split(",") if name.strip()]


def cache_wait() -> float:
    """Seconds to wait for another process that compiles the same program (OPENIPU_CACHE_WAIT)."""
    given = _cache_wait.read()
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"OPENIPU_CACHE_WAIT must be a number of seconds. Received: OPENIPU_CACHE_WAIT={given!r}.")
    return seconds


def check_indices() -> str:
    """Which labels and indices are checked: "off", "first" or "all" (OPENIPU_CHECK_INDICES)."""
    return _check_indices.read()


def xla_flags() -> str:
    """What XLA itself was told (XLA_FLAGS)."""
    return _xla_flags.read()


def tf_xla_flags() -> str:
    """What TensorFlow was told about XLA (TF_XLA_FLAGS)."""
    return _tf_xla_flags.read()


def plan_request() -> str:
    """The request of `openipu plan` (OPENIPU_PLAN): a file; empty when programs are to run."""
    return _plan.read()
