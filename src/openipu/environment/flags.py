"""The flags of TF_POPLAR_FLAGS: what they mean, what they default to, and how the text is parsed."""

import functools
import typing
from typing import Annotated, Any, NamedTuple

SYNTHETIC_DATA_CATEGORIES = ("infeed", "outfeed", "seed", "hostembedding", "parameters")


class Works(str):
    """The meaning of a flag that has an effect."""


class Accepted(str):
    """The meaning of a flag that is checked and then ignored: it tunes or debugs what openipu does not have."""


class PoplarFlags(NamedTuple):
    """The flags a program may give, with their types, meanings and defaults."""

    help: Annotated[bool, Works("print all flags and end the program")] = False
    use_ipu_model: Annotated[bool, Works("run on the software model of the IPU")] = False
    ipu_model_tiles: Annotated[int, Works("tiles of the software model; -1 for as many as the hardware has")] = -1
    use_synthetic_data: Annotated[bool, Works("transfer no data between host and device")] = False
    synthetic_data_categories: Annotated[
        str, Works(f"kinds of data not to transfer, separated by commas: {', '.join(SYNTHETIC_DATA_CATEGORIES)}")
    ] = ""
    synthetic_data_initializer: Annotated[
        str, Works("what synthetic inputs hold: random, uniform, normal or a number")
    ] = ""
    executable_cache_path: Annotated[str, Works("directory of the executable cache")] = ""
    max_compilation_threads: Annotated[int, Accepted("threads of the compiler")] = -1
    max_infeed_threads: Annotated[int, Accepted("threads that prepare the data of an infeed")] = -1
    show_progress_bar: Annotated[str, Works("progress of compilation: true, false or auto (on a terminal)")] = "auto"
    use_on_demand: Annotated[bool, Works("attach to IPUs when a program first runs")] = False
    on_demand_device_poll_time: Annotated[int, Works("milliseconds between two looks for free IPUs")] = 1000
    on_demand_device_timeout: Annotated[int, Works("milliseconds after which waiting for IPUs ends")] = 3600000
    while_loop_brute_force_max_trip_count: Annotated[int, Accepted("attempts to find out how long a loop is")] = 128
    log_cycle_count: Annotated[int, Accepted("tile whose cycles are counted and logged")] = -1
    allow_nans: Annotated[bool, Accepted("allow constants that are not a number")] = False
    null_data_feed: Annotated[bool, Accepted("infeeds copy nothing, to measure speed")] = False
    sync_replica_start: Annotated[bool, Accepted("replicas start together")] = False
    fallback_scheduler: Annotated[bool, Accepted("order operations by the simple scheduler")] = False
    dump_schedule_as_dot: Annotated[bool, Accepted("write the order of operations as a graph")] = False
    tensor_map_file_path: Annotated[str, Accepted("file for the places of tensors on tiles")] = ""
    enable_hlo_verifier: Annotated[bool, Accepted("check the program after every compiler pass")] = False
    disable_poplar_version_check: Annotated[bool, Accepted("do not compare versions of Poplar")] = False
    save_vertex_graph: Annotated[str, Accepted("file for the graph of vertices")] = ""
    save_interval_report: Annotated[str, Accepted("file for the report of intervals")] = ""

    @property
    def synthetic_categories(self) -> frozenset[str]:
        """The kinds of data that are made on the device instead of being transferred."""
        if self.use_synthetic_data:
            return frozenset(SYNTHETIC_DATA_CATEGORIES)
        return frozenset(part for part in self.synthetic_data_categories.split(",") if part)


class Flag(NamedTuple):
    """One row of the table of flags."""

    name: str
    default: bool | int | str
    meaning: str
    works: bool


def table() -> list[Flag]:
    """Every flag with its default and its meaning."""
    hints = typing.get_type_hints(PoplarFlags, include_extras=True)
    rows = []
    for name, default in PoplarFlags()._asdict().items():
        (meaning,) = hints[name].__metadata__
        rows.append(Flag(name, default, str(meaning), isinstance(meaning, Works)))
    return rows


def shown(default: bool | int | str) -> str:
    """A default as a user would write it."""
    return str(default).lower() if isinstance(default, bool) else str(default)


def usage() -> str:
    """What `TF_POPLAR_FLAGS=--help` prints."""
    lines = ["TF_POPLAR_FLAGS holds flags separated by blanks: --flag or --flag=value.", ""]
    for flag in table():
        note = "" if flag.works else " (accepted, no effect)"
        default = f"  [{shown(flag.default)}]" if flag.default not in ("", False) else ""
        lines.append(f"  --{flag.name}{default}\n        {flag.meaning}{note}")
    return "\n".join(lines)


@functools.cache
def parse(text: str) -> PoplarFlags:
    """The flags in `text`; an unknown flag or a wrong value is refused."""
    defaults = PoplarFlags()._asdict()
    given: dict[str, Any] = {}
    for item in text.split():
        name, equals, value = item.removeprefix("--").partition("=")
        if not item.startswith("--") or name not in defaults:
            valid = ", ".join(f"--{flag}" for flag in defaults)
            raise ValueError(f"TF_POPLAR_FLAGS has an unknown flag. Expected flags among: {valid}. Received: {item!r}.")
        given[name] = _parse_value(item, value if equals else None, type(defaults[name]))
    flags = PoplarFlags(**given)
    _check(flags)
    return flags


def _parse_value(item: str, value: str | None, kind: type) -> bool | int | str:
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


def _check(flags: PoplarFlags) -> None:
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
