"""How estimators run: steps of one program, IPUs, checkpoints, logs."""

import tempfile
from typing import Any, NamedTuple

from openipu.errors import UnsupportedError
from openipu.tensorflow.configuration.system import IPUConfig

_SECONDS_BETWEEN_CHECKPOINTS = 600


class _Fields(NamedTuple):
    iterations_per_loop: int = 1
    ipu_options: Any = None
    num_replicas: int = 1
    num_shards: int = 1
    ordinal: int = 0
    prefetch_depth: int | None = None


class IPURunConfig(_Fields):
    """How a model runs on IPUs.

    Args:
      iterations_per_loop: steps of one program, for each replica.
      ipu_options: an `IPUConfig`, applied before the model runs.
      num_replicas, num_shards: copies of the model, and IPUs of each copy.
      ordinal: of the device.
      prefetch_depth: of the infeed.
      compile_summary: of older programs, ignored.
    """

    __slots__ = ()

    def __new__(
        cls,
        iterations_per_loop: int = 1,
        ipu_options: Any = None,
        num_replicas: int = 1,
        num_shards: int = 1,
        ordinal: int = 0,
        prefetch_depth: int | None = None,
        *,
        compile_summary: bool = False,
    ) -> "IPURunConfig":
        _check_positive(iterations_per_loop=iterations_per_loop, num_replicas=num_replicas, num_shards=num_shards)
        wanted = num_replicas * num_shards
        if ipu_options is None:
            if wanted > 1:
                raise ValueError("IPU configuration requires more than one device, but `ipu_options` is None")
        elif not isinstance(ipu_options, IPUConfig):
            raise TypeError("ipu_options must be an IPUConfig instance.")
        else:
            _check_devices(_sizes(ipu_options), num_replicas, num_shards, ordinal)
        return super().__new__(cls, iterations_per_loop, ipu_options, num_replicas, num_shards, ordinal, prefetch_depth)


class RunConfig:
    """How an estimator runs.

    Args:
      ipu_run_config: an `IPURunConfig`.
      master: of older programs; only the process itself is possible.
      **kwargs: `model_dir`, `tf_random_seed`, `save_summary_steps`, `save_checkpoints_steps`, `save_checkpoints_secs`,
        `session_config`, `keep_checkpoint_max`, `keep_checkpoint_every_n_hours`, `log_step_count_steps`.
    """

    def __init__(self, ipu_run_config: IPURunConfig | None = None, master: str | None = None, **kwargs: Any) -> None:
        if master:
            raise UnsupportedError(f"RunConfig(master={master!r}) is not supported: an estimator runs in its process.")
        known = {
            "model_dir": None,
            "tf_random_seed": None,
            "save_summary_steps": 100,
            "save_checkpoints_steps": None,
            "save_checkpoints_secs": None,
            "session_config": None,
            "keep_checkpoint_max": 5,
            "keep_checkpoint_every_n_hours": 10000,
            "log_step_count_steps": 100,
        }
        unknown = {name for name, value in kwargs.items() if name not in known and value is not None}
        if unknown:
            raise UnsupportedError(
                f"RunConfig({', '.join(sorted(unknown))}=...) is not supported. Expected: {', '.join(known)}."
            )
        given = {name: value for name, value in kwargs.items() if name in known}
        if given.get("save_checkpoints_steps") is not None and given.get("save_checkpoints_secs") is not None:
            raise ValueError("Can not provide both save_checkpoints_steps and save_checkpoints_secs.")
        if not {"save_checkpoints_steps", "save_checkpoints_secs"} & given.keys():
            given["save_checkpoints_secs"] = _SECONDS_BETWEEN_CHECKPOINTS
        self._values = known | given
        self._ipu_run_config = IPURunConfig() if ipu_run_config is None else ipu_run_config

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("_values", {})
        if name not in values:
            raise AttributeError(f"RunConfig has no attribute {name!r}")
        return values[name]

    @property
    def ipu_run_config(self) -> IPURunConfig:
        """How the model runs on IPUs."""
        return self._ipu_run_config

    @property
    def master(self) -> str:
        """The process itself."""
        return ""

    def folder(self, model_dir: Any) -> str:
        """Where checkpoints are: the argument of the estimator, or of the config; a temporary folder if neither."""
        if model_dir and self.model_dir and str(model_dir) != str(self.model_dir):
            raise ValueError(
                "model_dir must be the same in the estimator and in its RunConfig. "
                f"Received: {model_dir!r} and {self.model_dir!r}."
            )
        return str(model_dir or self.model_dir or tempfile.mkdtemp(prefix="estimator_"))


def _check_positive(**given: Any) -> None:
    for name, value in given.items():
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a positive integer. Received: {name}={value!r}.")


def _sizes(options: IPUConfig) -> list[int]:
    """How many IPUs each device has."""
    auto = options.auto_select_ipus
    if isinstance(auto, int):
        return [auto]
    if auto:
        return list(auto)
    chosen = options.select_ipus
    return [1] if isinstance(chosen, int) else [1] * len(chosen or [0])


def _check_devices(sizes: list[int], replicas: int, shards: int, ordinal: int) -> None:
    if ordinal >= len(sizes):
        raise ValueError(
            f"Only {len(sizes)} device(s) available to choose from. You tried to pick a device at ordinal {ordinal}"
        )
    if sizes[ordinal] != replicas * shards:
        raise ValueError(
            f"`IPURunConfig` configured with {replicas * shards} devices ({replicas} replicas times {shards} shards), "
            f"but `ipu_options` configured with {sizes[ordinal]} devices"
        )
