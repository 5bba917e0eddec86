"""What openipu replaces in the classes of a Keras; rows in the Keras' table say why, and how it is undone."""

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any

from openipu import instances
from openipu.tensorflow.keras.versions.protocol import KerasVersion


def after_new(version: KerasVersion, finish: Callable[[Any], Any]) -> None:
    """Let every model that is being made pass through `finish`, before its `__init__`."""
    construct = version.Model.__new__

    @functools.wraps(construct)
    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        model = construct(cls, *args, **kwargs)
        return finish(model) if isinstance(model, version.Model) else model

    version.Model.__new__ = new


def before_init(owner: type, note: Callable[[Any], None]) -> Callable[[], None]:
    """Call `note` with every object of a class that is constructed; returns the function that ends it."""
    initialise = owner.__init__

    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        note(self)
        initialise(self, *args, **kwargs)

    # Keras reads the signature of `__init__` to save objects.
    noted.__signature__ = inspect.signature(initialise)  # pyright: ignore[reportFunctionMemberAccess]
    owner.__init__ = noted

    def undo() -> None:
        owner.__init__ = initialise

    return undo


def samples_alone(version: KerasVersion) -> None:
    """Let what Keras makes only to look at it belong to one instance: files are written by the first, and the others
    make no such variables that it could wait for."""
    if version.MAKES_SAMPLES is None:
        return
    owner, name = version.MAKES_SAMPLES
    make = getattr(owner, name)

    @functools.wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        with instances.alone():
            return make(*args, **kwargs)

    setattr(owner, name, made)


def on_load(
    version: KerasVersion, names: Collection[str], restore_model: Callable[[Any, dict[str, Any]], None]
) -> None:
    """Take our entries out of configs that models are made from, and give them to models made in scope.

    Args:
      version: the Keras.
      names: the entries of a config that are ours.
      restore_model: called with an extended model that was loaded and the entries that were found.
    """
    for cls in (version.Model, version.Sequential, version.Functional):
        load = cls.__dict__.get("from_config")
        if load is not None:
            cls.from_config = classmethod(_loading(load.__func__, frozenset(names), restore_model))


def _loading(load: Callable[..., Any], names: frozenset[str], restore_model: Callable) -> Callable[..., Any]:
    @functools.wraps(load)
    def from_config(cls: type, config: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        ours = {name: config[name] for name in names if name in config}
        model = load(cls, {n: v for n, v in config.items() if n not in names}, *args, **kwargs)
        if ours and hasattr(model, "__original_class__"):
            restore_model(model, ours)
        return model

    return from_config
