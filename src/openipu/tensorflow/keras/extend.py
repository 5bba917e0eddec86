"""Give Keras models made inside an IPU strategy's scope the class that trains them on the IPU."""

import functools
import sys
from types import ModuleType
from typing import Any

from openipu import environment
from openipu.tensorflow import strategy as strategies
from openipu.tensorflow.keras import saving, stages

_extended: dict[type, type] = {}
_watched: list[Any] = []


def install() -> None:
    """Watch the construction of models in every Keras that is loaded, and in the one `tf.keras` means."""
    legacy = environment.legacy_keras()
    if legacy or "tf_keras" in sys.modules:
        from openipu.tensorflow.keras import keras2

        _watch(keras2)
    if not legacy or "keras" in sys.modules:
        from openipu.tensorflow.keras import keras3

        _watch(keras3)


def _watch(flavour: Any) -> None:
    if flavour in _watched:
        return
    _watched.append(flavour)
    construct = flavour.Model.__new__

    @functools.wraps(construct)
    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        model = construct(cls, *args, **kwargs)
        return _extend(model, flavour) if isinstance(model, flavour.Model) else model

    flavour.Model.__new__ = new
    stages.restore_on_load(flavour, saving.NAMES, saving.restore)


def _extend(model: Any, flavour: ModuleType) -> Any:
    """Extend a model that is being made in a scope; give the plain class back to one made outside."""
    current = strategies.current()
    original = getattr(model.__class__, "__original_class__", model.__class__)
    if current is None or not current._enable_keras_extensions:
        if original is not model.__class__:
            model.__class__ = original
        return model
    if original is model.__class__:
        model.__class__ = _extended_class(original, flavour)
    model.__dict__["_ipu_strategy"] = current
    return model


def _extended_class(original: type, flavour: ModuleType) -> type:
    if original not in _extended:
        from openipu.tensorflow.keras import extension

        base = extension.ModelExtension
        if issubclass(original, flavour.Sequential):
            base = extension.SequentialExtension
        elif issubclass(original, flavour.Functional):
            base = extension.FunctionalExtension
        # Our methods come before the model's own: they are put into the class itself, not into a base behind it.
        names = {name: value for cls in reversed(base.__mro__[:-1]) for name, value in vars(cls).items()}
        names = {n: v for n, v in names.items() if n not in ("__dict__", "__weakref__", "__doc__")}
        names |= {
            "__module__": original.__module__,
            "__qualname__": original.__qualname__,
            "__doc__": original.__doc__,
            "__original_class__": original,
            "_ipu_keras": flavour,
        }
        _extended[original] = type(original)(original.__name__, (original, base), names)
        if original in flavour.registered_names:
            # So that what is saved can be loaded without naming the class.
            flavour.registered_names[_extended[original]] = flavour.registered_names[original]
    return _extended[original]
