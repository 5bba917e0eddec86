"""A tensor inside a model that the program wants to see."""

import attrs

from openipu.torch.enums import OutputMode


@attrs.frozen
class Anchor:
    """What to return of one tensor.

    Attributes:
      name: the tensor's name in the model.
      output_mode: which values come back; None for the same as the model's outputs.
      output_return_period: every how many iterations, for `OutputMode.EveryN`.
    """

    name: str
    output_mode: OutputMode | None = None
    output_return_period: int = 1


def anchor(name: str, output_mode: OutputMode | None, output_return_period: int) -> Anchor:
    """An anchor, checked."""
    assert output_mode is None or isinstance(output_mode, OutputMode), (
        f"output_mode must be a poptorch.OutputMode or None. Received: {type(output_mode)}"
    )
    if output_mode is OutputMode.EveryN:
        check_period(output_return_period)
        return Anchor(name, output_mode, output_return_period)
    return Anchor(name, output_mode)


def check_period(period: int | None) -> None:
    """Refuses a return period that is not a positive integer."""
    assert isinstance(period, int) and period > 0, (
        "EveryN anchor must have output_return_period set to valid positive integer"
    )
