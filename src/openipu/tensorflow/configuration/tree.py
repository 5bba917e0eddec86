"""Trees of checked options: what a table of options becomes when users read, set, print and store it."""

import copy
import difflib
import enum
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import attrs

logger = logging.getLogger(__name__)


@attrs.frozen
class Option:
    """One row of the table a config class is made from.

    Args:
      name: full dotted name; the parts before the last one are categories.
      type: a class, or a hint for which `check` is given.
      default: the value in a new config.
      doc: what it does, for the user.
      check: whether a value is acceptable; without it the value's class must be exactly `type`.
    """

    name: str
    type: Any
    default: Any
    doc: str = ""
    check: Callable[[Any], bool] | None = None

    def accepts(self, value: object) -> bool:
        """Whether `value` may be assigned; subclasses are refused, so `True` is no int."""
        return self.check(value) if self.check else type(value) is self.type


def _accepts_anything(value: object) -> bool:
    return True


class AttributeMetadata:
    """What is known about one option or category of a config."""

    def __init__(
        self,
        name: str,
        doc: str = "",
        depth: int = 0,
        default: Any = None,
        deprecated_msg: str | None = None,
        attr_type: Any = None,
        attr_type_str: str | None = None,
        check_type_fn: Callable[[Any], bool] = _accepts_anything,
    ) -> None:
        """Describes `name`, which is `depth` categories deep; `check_type_fn` says which values it takes."""
        self.__doc__ = doc
        self._name = name
        self._depth = depth
        self._default = default
        self._deprecated_msg = deprecated_msg
        self._type = attr_type
        self._type_text = attr_type_str
        self._accepts = check_type_fn

    @property
    def name(self) -> str:
        """The full dotted name."""
        return self._name

    @property
    def deprecated(self) -> bool:
        """Whether setting it logs a warning."""
        return self._deprecated_msg is not None

    @property
    def deprecated_msg(self) -> str | None:
        """What the warning says."""
        return self._deprecated_msg

    @property
    def type(self) -> str | None:
        """The type as text; None for a category."""
        if self._type_text is None and self._type is not None:
            return self._type.__name__ if isinstance(self._type, type) else str(self._type)
        return self._type_text

    @property
    def actual_type(self) -> Any:
        """The type itself; None for a category."""
        return self._type

    @property
    def default(self) -> Any:
        """The value in a new config."""
        return copy.deepcopy(self._default)

    def check_type(self, value: object) -> None:
        """Raises a TypeError for a value that the option does not take."""
        if not self._accepts(value):
            raise TypeError(f"Trying to set {self.name} to {value}, but it must be of type {self.type}")

    def warn_if_deprecated(self) -> None:
        """Logs the deprecation, if there is one."""
        if self.deprecated:
            logger.warning("%s has been deprecated: %s", self.name, self.deprecated_msg)


class Category:
    """A named part of a config: options and further categories."""

    def __init__(self, table: Sequence[Option], deprecations: Mapping[str, str], path: str = "") -> None:
        """Builds the part below `path` with every option at its default."""
        metadata: dict[str, AttributeMetadata] = {}
        values: dict[str, Any] = {}
        prefix = f"{path}." if path else ""
        for option in table:
            if not option.name.startswith(prefix):
                continue
            local, dot, _ = option.name[len(prefix) :].partition(".")
            if local in metadata:
                continue
            name = prefix + local
            message = _deprecation(name, deprecations)
            depth = name.count(".")
            if dot:
                metadata[local] = AttributeMetadata(name, depth=depth, deprecated_msg=message)
                values[local] = Category(table, deprecations, name)
            else:
                metadata[local] = AttributeMetadata(
                    name,
                    doc=option.doc,
                    depth=depth,
                    default=option.default,
                    deprecated_msg=message,
                    attr_type=option.type,
                    check_type_fn=option.accepts,
                )
                values[local] = copy.deepcopy(option.default)
        self.__dict__.update(_metadata=metadata, _values=values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            # Python itself asks for such names (copy, pickle, numpy) and wants to hear "no" in its own way.
            raise AttributeError(name)
        if name not in self.__dict__.get("_values", {}):
            raise self._unknown(name)
        return self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        metadata = self._metadata.get(name)
        if metadata is None:
            raise self._unknown(name)
        if isinstance(self._values[name], Category):
            raise Exception(f"{metadata.name} is a category and cannot be assigned to.")
        metadata.check_type(value)
        metadata.warn_if_deprecated()
        self._values[name] = value

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._values]

    def __deepcopy__(self, memo: dict[int, Any]) -> "Category":
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        # The metadata never changes, so copies share it.
        new.__dict__.update(_metadata=self._metadata, _values=copy.deepcopy(self._values, memo))
        return new

    def __str__(self) -> str:
        return "\n".join(f"{metadata.name} = {_text(value)}" for metadata, value in self._leaves())

    def __repr__(self) -> str:
        return "\n  ".join([f"{type(self).__name__}:", *str(self).splitlines()])

    def to_dict(self) -> dict[str, Any]:
        """Every option by its full name; enums as integers."""
        return {metadata.name: _plain(value) for metadata, value in self._leaves()}

    def from_dict(self, dct: Mapping[str, Any]) -> None:
        """Sets the options found in a dictionary as `to_dict` makes it; the others keep their values."""
        for local, metadata in self._metadata.items():
            current = self._values[local]
            if isinstance(current, Category):
                current.from_dict(dct)
            elif metadata.name not in dct:
                logger.warning("%s didn't have a value: the existing value will be retained", metadata.name)
            else:
                value = copy.deepcopy(dct[metadata.name])
                if isinstance(current, enum.Enum) and type(value) is int:
                    value = type(current)(value)
                if type(value) is not type(current) or value != current:
                    setattr(self, local, value)

    def to_json(self) -> str:
        """The dictionary form as JSON."""
        return json.dumps(self.to_dict())

    def from_json(self, json_cfg: str) -> None:
        """Sets the options found in JSON as `to_json` makes it."""
        self.from_dict(json.loads(json_cfg))

    def get_attribute_metadata(self, attr: str) -> AttributeMetadata:
        """What is known about the option or category with this dotted name."""
        *categories, last = attr.split(".")
        part = self
        for name in categories:
            inner = part._values.get(name)
            if not isinstance(inner, Category):
                reason = f"'{name}' is not a category." if name in part._metadata else part._unknown(name)
                raise ValueError(f"Could not get attribute metadata for '{attr}': {reason}")
            part = inner
        if last not in part._metadata:
            raise ValueError(f"Could not get attribute metadata for '{attr}': {part._unknown(last)}")
        return part._metadata[last]

    def _leaves(self) -> Iterator[tuple[AttributeMetadata, Any]]:
        for local, value in self._values.items():
            if isinstance(value, Category):
                yield from value._leaves()
            else:
                yield self._metadata[local], value

    def _unknown(self, name: str) -> ValueError:
        close = difflib.get_close_matches(name, self._metadata, n=1)
        hint = f"Did you mean '{self._metadata[close[0]].name}'?" if close else ""
        return ValueError(f"'{name}' is not a valid attribute of this config. {hint}")


class Config(Category):
    """A whole tree: subclasses give the table."""

    _table: ClassVar[Sequence[Option]] = ()
    _deprecations: ClassVar[Mapping[str, str]] = {}

    def __init__(self) -> None:
        """Builds the tree with every option at its default."""
        super().__init__(self._table, self._deprecations)


AnyConfig = TypeVar("AnyConfig", bound=Config)


def deprecate_config_attribute(name: str, msg: str) -> Callable[[type[AnyConfig]], type[AnyConfig]]:
    """A class decorator: setting the option `name` (or anything in the category `name`) logs `msg`."""
    return deprecate_config_attributes({name: msg})


def deprecate_config_attributes(
    to_deprecate: Mapping[str, str] | Iterable[tuple[str, str]],
) -> Callable[[type[AnyConfig]], type[AnyConfig]]:
    """A class decorator that deprecates several options or categories, given as names and messages."""
    messages = dict(to_deprecate)

    def decorate(cls: type[AnyConfig]) -> type[AnyConfig]:
        for name in messages:
            cls().get_attribute_metadata(name)
        cls._deprecations = {**cls._deprecations, **messages}
        return cls

    return decorate


def _deprecation(name: str, deprecations: Mapping[str, str]) -> str | None:
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        message = deprecations.get(".".join(parts[:end]))
        if message is not None:
            return message
    return None


def _text(value: object) -> str:
    return str(value) if isinstance(value, enum.Enum) else repr(value)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else copy.deepcopy(value)
