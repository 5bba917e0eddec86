"""Every environment variable openipu reads, parsed in one place."""

import functools
import os
from typing import Any, NamedTuple


def choice(name: str, default: str, valid: tuple[str, ...]) -> str:
    """The value of an environment variable that must be one of `valid`.

    Args:
      name: the variable.
      default: what an unset or empty variable means.
      valid: all values a user may give.

    Returns:
      The value, in the spelling of `valid`.
    """
    given = os.environ.get(name, "").strip()
    if not given:
        return default
    for value in valid:
        if given.lower() == value.lower():
            return value
    raise ValueError(f"{name} must be one of: {', '.join(valid)}. Received: {name}={given!r}.")


def use_sample_datasets() -> bool:
    """Whether `keras.datasets` answers from the embedded sample (OPENIPU_DATASETS=sample)."""
    return choice("OPENIPU_DATASETS", "download", ("download", "sample")) == "sample"


def system_name() -> str:
    """The virtual system's name (OPENIPU_SYSTEM), which `openipu.hardware.current_system` understands."""
    return os.environ.get("OPENIPU_SYSTEM", "").strip() or "bow-pod16"


class PoplarFlags(NamedTuple):
    """The flags a program may give in TF_POPLAR_FLAGS, with their defaults; the default's type is the flag's type."""

    help: bool = False
    use_ipu_model: bool = False
    ipu_model_tiles: int = -1
    use_synthetic_data: bool = False
    synthetic_data_categories: str = ""
    synthetic_data_initializer: str = ""
    executable_cache_path: str = ""
    max_compilation_threads: int = -1
    max_infeed_threads: int = -1
    show_progress_bar: str = "auto"
    use_on_demand: bool = False
    on_demand_device_poll_time: int = 1000
    on_demand_device_timeout: int = 3600000
    while_loop_brute_force_max_trip_count: int = 128
    log_cycle_count: int = -1
    allow_nans: bool = False
    null_data_feed: bool = False
    sync_replica_start: bool = False
    fallback_scheduler: bool = False
    dump_schedule_as_dot: bool = False
    tensor_map_file_path: str = ""
    enable_hlo_verifier: bool = False
    disable_poplar_version_check: bool = False
    save_vertex_graph: str = ""
    save_interval_report: str = ""

    @property
    def synthetic_categories(self) -> frozenset[str]:
        """The kinds of data that are made on the device instead of being transferred."""
        if self.use_synthetic_data:
            return frozenset(SYNTHETIC_DATA_CATEGORIES)
        return frozenset(part for part in self.synthetic_data_categories.split(",") if part)


SYNTHETIC_DATA_CATEGORIES = ("infeed", "outfeed", "seed", "hostembedding", "parameters")


def poplar_flags() -> PoplarFlags:
    """The flags in TF_POPLAR_FLAGS, checked."""
    return _parse_poplar_flags(os.environ.get("TF_POPLAR_FLAGS", ""))


def running_on_ipu_model() -> bool:
    """Whether TF_POPLAR_FLAGS asks for the software model of the IPU; as in the original, the text alone decides."""
    return "--use_ipu_model" in os.environ.get("TF_POPLAR_FLAGS", "")


@functools.cache
def _parse_poplar_flags(text: str) -> PoplarFlags:
    defaults = PoplarFlags()._asdict()
    given: dict[str, Any] = {}
    for item in text.split():
        name, equals, value = item.removeprefix("--").partition("=")
        if not item.startswith("--") or name not in defaults:
            valid = ", ".join(f"--{flag}" for flag in defaults)
            raise ValueError(f"TF_POPLAR_FLAGS has an unknown flag. Expected flags among: {valid}. Received: {item!r}.")
        given[name] = _parse_flag_value(item, value if equals else None, type(defaults[name]))
    flags = PoplarFlags(**given)
    _check_poplar_flags(flags)
    return flags


def _parse_flag_value(item: str, value: str | None, kind: type) -> bool | int | str:
    try:
        if kind is bool:
            return {None: True, "true": True, "1": True, "false": False, "0": False}[value and value.lower()]
        if kind is int:
            return int(value or "")
        if value is None:
            raise ValueError("no value")
        return value
    except (KeyError, ValueError):
        expected = {bool: "true or false", int: "an integer", str: "a value after '='"}[kind]
        raise ValueError(f"A flag in TF_POPLAR_FLAGS needs {expected}. Received: {item!r}.") from None


def _check_poplar_flags(flags: PoplarFlags) -> None:
    wrong = sorted(flags.synthetic_categories.difference(SYNTHETIC_DATA_CATEGORIES))
    if wrong:
        raise ValueError(
            "--synthetic_data_categories in TF_POPLAR_FLAGS must be a comma-separated list of: "
            f"{', '.join(SYNTHETIC_DATA_CATEGORIES)}. Received: {', '.join(wrong)}."
        )
    initializer = flags.synthetic_data_initializer
    if initializer and not flags.synthetic_categories:
        raise ValueError(
            "--synthetic_data_initializer in TF_POPLAR_FLAGS only has a meaning with --use_synthetic_data or "
            f"--synthetic_data_categories. Received: --synthetic_data_initializer={initializer}. Add one of them."
        )
    if initializer and initializer not in ("random", "uniform", "normal"):
        try:
            float(initializer)
        except ValueError:
            raise ValueError(
                "--synthetic_data_initializer in TF_POPLAR_FLAGS must be random, uniform, normal or a number. "
                f"Received: {initializer!r}."
            ) from None
    if flags.show_progress_bar not in ("true", "false", "auto"):
        raise ValueError(
            "--show_progress_bar in TF_POPLAR_FLAGS must be true, false or auto. "
            f"Received: {flags.show_progress_bar!r}."
        )
    if flags.on_demand_device_poll_time < 100:
        raise ValueError(
            "--on_demand_device_poll_time in TF_POPLAR_FLAGS must be at least 100 (milliseconds). "
            f"Received: {flags.on_demand_device_poll_time}."
        )


def poptorch_log_level() -> str:
    """How much the poptorch logger says at the start (POPTORCH_LOG_LEVEL); the logger checks the value."""
    return os.environ.get("POPTORCH_LOG_LEVEL", "").strip() or "WARN"


def poptorch_cache_dir() -> str:
    """Where every new `poptorch.Options` caches executables (POPTORCH_CACHE_DIR); empty for nowhere."""
    return os.environ.get("POPTORCH_CACHE_DIR", "").strip()


def poptorch_default_options() -> str:
    """JSON that is applied to every new `poptorch.Options` (POPTORCH_DEFAULT_OPTIONS); empty for none."""
    return os.environ.get("POPTORCH_DEFAULT_OPTIONS", "").strip()


def poptorch_ipu_model() -> bool:
    """Whether a variable selects the software model of the IPU (POPTORCH_IPU_MODEL, POPTORCH_SMALL_IPU_MODEL)."""
    names = ("POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL")
    return any(choice(name, "0", ("0", "1", "false", "true")) in ("1", "true") for name in names)


def poptorch_ipu_model_version() -> str:
    """The architecture of the software model (POPTORCH_IPU_MODEL_VERSION)."""
    return choice("POPTORCH_IPU_MODEL_VERSION", "ipu2", ("ipu1", "ipu2", "ipu21"))


def poptorch_waits_for_ipu() -> bool:
    """Whether a program waits for busy IPUs instead of failing (POPTORCH_WAIT_FOR_IPU)."""
    return choice("POPTORCH_WAIT_FOR_IPU", "0", ("0", "1", "false", "true")) in ("1", "true")


def poplar_engine_options() -> dict[str, str]:
    """The engine options in POPLAR_ENGINE_OPTIONS, a JSON object; values as text."""
    text = os.environ.get("POPLAR_ENGINE_OPTIONS", "").strip()
    if not text:
        return {}
    import json

    try:
        options = json.loads(text)
    except json.JSONDecodeError:
        options = None
    if not isinstance(options, dict):
        raise ValueError(f"POPLAR_ENGINE_OPTIONS must be a JSON object. Received: POPLAR_ENGINE_OPTIONS={text!r}.")
    return {key: str(value) for key, value in options.items()}


def integer(name: str, default: int) -> int:
    """The value of an environment variable that must be an integer; an unset or empty one means `default`."""
    given = os.environ.get(name, "").strip()
    if not given:
        return default
    try:
        return int(given)
    except ValueError:
        raise ValueError(f"{name} must be an integer. Received: {name}={given!r}.") from None
