"""The names of reductions that collectives take."""

NAMES = ("ADD", "MUL", "MIN", "MAX", "LOGICAL_AND", "LOGICAL_OR", "SQUARE_ADD", "LOCAL", "MEAN")
_PREFIX = "COLLECTIVE_OP_"


def parse(op: str) -> str:
    """The short name of a reduction, such as ADD for COLLECTIVE_OP_ADD."""
    name = op.removeprefix(_PREFIX) if isinstance(op, str) else op
    if name not in NAMES:
        raise ValueError(f"op must be one of {', '.join(_PREFIX + known for known in NAMES)}. Received: op={op!r}.")
    return name
