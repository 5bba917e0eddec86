"""`build` of models in scope: a subclassed model is built from shapes or symbolic inputs by running its `call`."""

from collections.abc import Callable
from typing import Any

from openipu.tensorflow.keras.stages import reading, scope
from openipu.tensorflow.keras.stages.graph import Kind, kind_of
from openipu.tensorflow.keras.stages.state import state_of
from openipu.tensorflow.keras.versions import version_of


def build(model: Any, inner: Callable[..., None], args: tuple, kwargs: dict[str, Any]) -> None:
    """Build a model; a subclassed one remembers what it was built for.

    Args:
      model: an extended model.
      inner: its `build` in Keras.
      args: shapes or symbolic inputs.
      kwargs: the same, by name.
    """
    given = [*args, *kwargs.values()]
    if kind_of(model) is not Kind.SUBCLASS or len(given) != 1 or given[0] is None:
        inner(*args, **kwargs)
        return
    version = version_of(model)
    symbolic = all(version.is_symbolic(value) for value in version.flatten(given[0]))
    inputs = version.symbolic_like(model, given[0])
    if symbolic:
        shapes = version.map_structure(lambda t: version.shape_and_dtype(t)[0], given[0])
        args, kwargs = ((shapes,), {}) if args else ((), dict.fromkeys(kwargs, shapes))
    opened = scope.opened()
    if getattr(inner, "_is_default", False) and not version.in_call():
        _run_call(model, inputs, plain=not symbolic)
    if symbolic and not version.BUILDS_FROM_SHAPES:
        with model._ipu.strategy.scope():
            version.infer(model, inputs)
    else:
        inner(*args, **kwargs)
    state_of(model).inputs = inputs
    if scope.opened() > opened:
        scope.mark(model)
    # Inside a call the graph is not the one of this model; it is read when it is first needed.
    if not version.in_call():
        reading.read_subclass(model)


def _run_call(model: Any, inputs: Any, plain: bool) -> None:
    version = version_of(model)
    state_of(model).called = True
    try:
        with model._ipu.strategy.scope(), version.scope(model):
            version.infer(model.call, inputs)
    except RuntimeError:
        raise
    except Exception as error:
        if not plain:
            raise
        raise ValueError(
            "You cannot pass a plain shape to your model's `build` function if your layers do not support float type "
            "inputs. Pass `keras.Input`s with the dtypes of your data, or call the model on data. "
            f"The model {model.name} failed with: {error}"
        ) from error
