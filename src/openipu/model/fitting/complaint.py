"""What is said of a program that would not fit: by how much, for whose sake, and what would help."""

from collections.abc import Mapping

from openipu.model.estimate import Category, Estimate, Suggestion

_MIB = 2**20


def complaint(made: Estimate, found: tuple[Suggestion, ...], layers: int = 5) -> str:
    """The text for an estimate that does not fit, and for what would help."""
    worst = made.worst
    lines = [
        f"{made.program} would not fit on {made.target.name.capitalize()} IPUs: the fullest tile of IPU {worst.ipu} "
        f"would need {worst.worst_tile / 1024:,.0f} KiB of {worst.limit / 1024:,.0f} "
        f"({worst.overflow / 1024:,.0f} KiB too much), "
        f"the IPU {worst.total / _MIB:,.0f} MiB (by the model {worst.low / _MIB:,.0f} to {worst.high / _MIB:,.0f}) of "
        f"{worst.capacity / _MIB:,.0f}.",
        "Largest layers: " + "; ".join(_layer(one.layer, one.bytes) for one in worst.contributors[:layers]) + ".",
    ]
    if found:
        lines.append("What would help (predicted):")
    lines += [f"  {_suggestion(one, made)}" for one in found]
    return "\n".join(lines)


def _layer(name: str, sizes: Mapping[Category, int]) -> str:
    category, largest = max(sizes.items(), key=lambda item: item[1])
    total = sum(sizes.values())
    return f"{name or 'outside of layers'} {total / _MIB:,.1f} MiB ({category.value} {largest / _MIB:,.1f})"


def _suggestion(one: Suggestion, made: Estimate) -> str:
    change = (one.seconds or 0.0) / made.seconds_per_step
    time = f", {change:+.0%} time" if abs(change) >= 0.005 else ""
    enough = "it fits then" if one.fits else "not enough alone"
    return f"{one.option}: {one.saves / _MIB:,.0f} MiB less{time}, {enough} ({one.how})"
