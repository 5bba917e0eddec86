"""Give Keras models made inside an IPU strategy's scope the class that trains them on the IPU."""

import functools
from typing import Any

from openipu.tensorflow.executor import strategy as strategies
from openipu.tensorflow.keras import saving, versions
from openipu.tensorflow.keras.versions import KerasVersion, normalization, patches, recurrent

_extended: dict[type, type] = {}
_watched: list[Any] = []


def install() -> None:
    """Watch the construction of models in every Keras that is loaded, and in the one `tf.keras` means."""
    for version in versions.in_use():
        if version not in _watched:
            _watched.append(version)
            patches.after_new(version, functools.partial(_extend, version=version))
            recurrent.install(version)
            normalization.install(version)
            patches.samples_alone(version)
            patches.on_load(version, saving.NAMES, saving.restore)


def _extend(model: Any, version: KerasVersion) -> Any:
    """Extend a model that is being made in a scope; give the plain class back to one made outside."""
    current = strategies.current()
    original = getattr(model.__class__, "__original_class__", model.__class__)
    if current is None or not current._enable_keras_extensions:
        if original is not model.__class__:
            model.__class__ = original
        return model
    if original is model.__class__:
        model.__class__ = _extended_class(original, version)
    model.__dict__["_ipu_strategy"] = current
    return model


def _extended_class(original: type, version: KerasVersion) -> type:
    if original not in _extended:
        from openipu.tensorflow.keras import model_methods

        base = model_methods.ModelExtension
        if issubclass(original, version.Sequential):
            base = model_methods.SequentialExtension
        elif issubclass(original, version.Functional):
            base = model_methods.FunctionalExtension
        names = {
            "__module__": original.__module__,
            "__qualname__": original.__qualname__,
            "__doc__": original.__doc__,
            "__original_class__": original,
            "_ipu_keras": version,
        }
        # Our methods come before the model's own.
        _extended[original] = type(original)(original.__name__, (base, original), names)
        if original in version.registered_names:
            # So that what is saved can be loaded without naming the class.
            version.registered_names[_extended[original]] = version.registered_names[original]
    return _extended[original]


strategies.prepare_keras(install)
