"""Options passed through to the backend: stored as given, checked when a model is compiled."""

import copy
from typing import Any, Self

from openipu.torch.exceptions import Error
from openipu.torch.options import popart_keys


class _PopartOptions:
    """Backend options by their own names."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {"instrumentWithHardwareCycleCounter": False, "rearrangeAnchorsOnHost": False}
        self._is_frozen = False

    def checkIsFrozen(self, option: str | None = None) -> None:
        """Refuses a change once a model or a loader uses the options."""
        if self._is_frozen:
            raise AttributeError("Can't modify frozen Options")

    def set(self, key: str, value: Any) -> Self:
        """Sets one backend option; enumerations are given as integers."""
        self.checkIsFrozen(key)
        self.options[key] = value
        return self

    def setEngineOptions(self, engine_options: dict[str, str]) -> Self:
        """Sets the options of the Poplar engine."""
        return self.set("engineOptions", engine_options)

    def setPatterns(self, patterns: dict[str, bool], level: int = 2) -> Self:
        """Switches graph transformations on and off; tuning only.

        Args:
          patterns: transformation by name: on or off.
          level: the set of transformations to start from.
        """
        assert isinstance(level, int), f"level must be an int. Received: {type(level)}"
        assert isinstance(patterns, dict), f"patterns must be a dict of name: bool. Received: {type(patterns)}"
        self.set("patterns_level", level)
        return self.set("patterns", patterns)

    def __deepcopy__(self, memory: dict[int, Any]) -> Self:
        made = type(self)()
        memory[id(self)] = made
        made.options = copy.deepcopy(self.options, memory)
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value}' for key, value in self.options.items())})"

    def _freeze(self) -> None:
        self._is_frozen = True

    def _unfreeze(self) -> None:
        self._is_frozen = False


def check_popart(options: dict[str, Any]) -> None:
    """Refuses keys that do not exist, or not with a value of that type."""
    for key, value in options.items():
        kind = popart_keys.kind_of(value)
        if kind is None:
            raise Error(f"Unknown value type {type(value)} for option {key}")
        word, known = kind
        if key not in known:
            raise Error(f"Unknown {word} option {key}")
        if word == "uint64" and value < 0:
            raise Error(f"Option {key} must not be negative. Received: {value}")
