"""Quantities as people read them: three digits, and the unit that fits."""


def bytes_text(value: float | None) -> str:
    """Bytes, in powers of 1024."""
    return _scaled(value, ("B", "KiB", "MiB", "GiB", "TiB"), 1024)


def seconds_text(value: float | None) -> str:
    """Seconds, down to nanoseconds."""
    if value is None:
        return "-"
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if value * factor >= 1:
            return f"{_digits(value * factor)} {unit}"
    return f"{_digits(value * 1e9)} ns"


def throughput_text(value: float | None) -> str:
    """Samples per second."""
    return "-" if value is None else _digits(value)


def percent_text(share: float | None) -> str:
    """A part of one."""
    return "-" if share is None else f"{share:.0%}"


def _scaled(value: float | None, units: tuple[str, ...], base: int) -> str:
    if value is None:
        return "-"
    for unit in units[:-1]:
        if abs(value) < base:
            return f"{_digits(value)} {unit}"
        value /= base
    return f"{_digits(value)} {units[-1]}"


def _digits(value: float) -> str:
    return f"{float(f'{value:.3g}'):,.10g}"
