"""The object every group of options is: typed values set through methods, readable as attributes, freezable."""

import copy
from typing import Any, Self


class OptionsDict:
    """Values by name, each keeping the type of its default.

    Private attributes belong to a subclass that makes them before it calls this constructor; later, unknown ones
    are refused, so that a misspelt option never passes unnoticed.

    Args:
      default_values: the options that exist from the start.
    """

    def __init__(self, **default_values: Any) -> None:
        self._is_frozen = False
        self._values = default_values

    def set(self, **kwargs: Any) -> Self:
        """Changes options that exist, to values of the type they have."""
        for option, value in kwargs.items():
            self.checkIsFrozen(option)
            assert option in self._values, (
                f"Invalid option {option}, valid options are {', '.join(sorted(self._values))}"
            )
            expected = type(self._values[option])
            assert isinstance(value, expected), (
                f"Unexpected type {type(value)} for option {option}. Expected {expected}"
            )
            self._values[option] = value
        return self

    def createOrSet(self, **kwargs: Any) -> Self:
        """Changes options of any type, making those that do not exist."""
        for option, value in kwargs.items():
            self.checkIsFrozen(option)
            self._values[option] = value
        return self

    def exists(self, option: str) -> bool:
        """Whether an option has a value; some have none until they are set."""
        return option in self._values

    def deleteIfExists(self, option: str) -> None:
        """Takes an option away."""
        if option in self._values:
            self.checkIsFrozen(option)
            del self._values[option]

    def checkIsFrozen(self, option: str | None = None) -> None:
        """Refuses a change once a model or a loader uses the options."""
        if self._is_frozen:
            raise AttributeError("Can't modify frozen Options")

    def update(self, other: "OptionsDict | dict[str, Any]") -> None:
        """Takes over all values of another group."""
        self.createOrSet(**(other.toDict() if isinstance(other, OptionsDict) else other))

    def toDict(self) -> dict[str, Any]:
        """A copy of the values."""
        return dict(self._values)

    def __call__(self, option: str) -> Any:
        if option not in self._values:
            raise AttributeError(f"Invalid attribute {option}.")
        return self._values[option]

    def __getattr__(self, option: str) -> Any:
        # Copying and unpickling ask for attributes before there are any values.
        values = self.__dict__.get("_values", {})
        if option not in values:
            raise AttributeError(f"Invalid attribute {option}.")
        return values[option]

    def __setattr__(self, option: str, value: Any) -> None:
        if not option.startswith("_"):
            self.set(**{option: value})
        elif option.startswith("__") or option in self.__dict__ or "_values" not in self.__dict__:
            super().__setattr__(option, value)
        else:
            raise AttributeError(f"Invalid private attribute {option}.")

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __deepcopy__(self, memory: dict[int, Any]) -> Self:
        made = type(self).__new__(type(self))
        memory[id(self)] = made
        made.__dict__.update(copy.deepcopy(self.__dict__, memory))
        made.__dict__["_is_frozen"] = False
        return made

    def __repr__(self) -> str:
        shown = [f"{name}={value}" for name, value in self._values.items()]
        shown += [f"{name}={group!r}" for name, group in self._groups().items()]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _groups(self) -> dict[str, Any]:
        """The groups inside this one, by the name of their property."""
        return {}

    def _freeze(self) -> None:
        """Makes every later change an error, here and in the groups inside."""
        self._is_frozen = True
        for group in self._groups().values():
            group._freeze()

    def _unfreeze(self) -> None:
        self._is_frozen = False
        for group in self._groups().values():
            group._unfreeze()
