"""PopTorch's variables (its log is in `talk`)."""

from openipu.environment.variable import BOOLEAN, declare

POPTORCH = "PopTorch"

_cache = declare(
    "POPTORCH_CACHE_DIR",
    POPTORCH,
    "Where every new `poptorch.Options` caches executables.",
    values="a directory; unset for none",
)
_default_options = declare(
    "POPTORCH_DEFAULT_OPTIONS",
    POPTORCH,
    "Applied to every new `poptorch.Options`.",
    values="a JSON object",
)
_ipu_model = declare("POPTORCH_IPU_MODEL", POPTORCH, "Selects the software model of the IPU.", "0", BOOLEAN)
_small_model = declare("POPTORCH_SMALL_IPU_MODEL", POPTORCH, "Selects a small software model.", "0", BOOLEAN)
_version = declare(
    "POPTORCH_IPU_MODEL_VERSION",
    POPTORCH,
    "The architecture of the software model.",
    "ipu2",
    ("ipu1", "ipu2", "ipu21"),
)
_wait = declare("POPTORCH_WAIT_FOR_IPU", POPTORCH, "Wait for busy IPUs instead of failing.", "0", BOOLEAN)


def poptorch_cache_dir() -> str:
    """Where every new `poptorch.Options` caches executables (POPTORCH_CACHE_DIR); empty for nowhere."""
    return _cache.read()


def poptorch_default_options() -> str:
    """JSON that is applied to every new `poptorch.Options` (POPTORCH_DEFAULT_OPTIONS); empty for none."""
    return _default_options.read()


def poptorch_ipu_model() -> bool:
    """Whether a variable selects the software model of the IPU (POPTORCH_IPU_MODEL, POPTORCH_SMALL_IPU_MODEL)."""
    return _ipu_model.is_on() or _small_model.is_on()


def poptorch_ipu_model_version() -> str:
    """The architecture of the software model (POPTORCH_IPU_MODEL_VERSION)."""
    return _version.read()


def poptorch_waits_for_ipu() -> bool:
    """Whether a program waits for busy IPUs instead of failing (POPTORCH_WAIT_FOR_IPU)."""
    return _wait.is_on()
