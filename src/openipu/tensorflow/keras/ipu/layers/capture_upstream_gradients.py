"""Layers whose gradients are kept by a capture context or tape, or by an optimizer that looks at them."""

import inspect
from collections.abc import Callable
from typing import Any

from openipu.tensorflow.exceptions import UnsupportedError
from openipu.tensorflow.keras.ipu.wrapping import keras
from openipu.tensorflow.ops.gradient_capture import watched

_ACTIVATIONS = ("activation", "recurrent_activation")


class _Wrapper(keras.layers.Layer):
    """A layer around another, whose weights and trainability are those of the other."""

    def __init__(self, layer: Any, tag: str, **kwargs: Any) -> None:
        super().__init__(**{"name": f"{layer.name}_{self._suffix}", **kwargs})
        self.layer = layer
        self.tag = tag

    _suffix = ""

    def build(self, input_shape: Any) -> None:
        """Build the wrapped layer."""
        if not self.layer.built:
            self.layer.build(input_shape)

    def _inner(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the wrapped layer; Keras 2 gives `training` and `mask` to all that take any keywords."""
        taken = inspect.signature(self.layer.call).parameters
        anything = any(p.kind is p.VAR_KEYWORD for p in taken.values())
        return self.layer(inputs, *args, **{n: v for n, v in kwargs.items() if anything or n in taken})

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shape of the wrapped layer's output."""
        return self.layer.compute_output_shape(input_shape)

    def get_config(self) -> dict[str, Any]:
        """The wrapped layer and the tag."""
        layer = keras.saving.serialize_keras_object(self._saved_layer())
        return {**super().get_config(), "layer": layer, "tag": self.tag}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "_Wrapper":
        """Make it again."""
        layer = keras.saving.deserialize_keras_object(config["layer"])
        return cls(**{**config, "layer": layer})

    def _saved_layer(self) -> Any:
        return self.layer


@keras.saving.register_keras_serializable("openipu")
class CaptureUpstreamGradients(_Wrapper):
    """Records the gradient that arrives at a layer's output.

    Args:
      layer: the layer to wrap.
      tag: the name of the record; `<layer.name>_cug` by default.
    """

    _suffix = "cug"

    def __init__(self, layer: Any, tag: str | None = None, **kwargs: Any) -> None:
        _require_this_keras(layer, "CaptureUpstreamGradients")
        super().__init__(layer, tag or f"{layer.name}_cug", **kwargs)

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """What the layer computes."""
        return watched(self._inner(inputs, *args, **kwargs), self.tag, needed=False)


@keras.saving.register_keras_serializable("openipu")
class CaptureActivationGradients(_Wrapper):
    """Records the gradient with respect to the input of each activation function of a layer.

    Args:
      layer: the layer; a copy of it, with its activation functions wrapped, takes its place.
      tag: begins the names of the records, `<tag>_<name of the activation>`; `<layer.name>_cag` by default.
    """

    _suffix = "cag"

    def __init__(self, layer: Any, tag: str | None = None, **kwargs: Any) -> None:
        _require_this_keras(layer, "CaptureActivationGradients")
        tag = tag or f"{layer.name}_cag"
        super().__init__(_with_recording_activations(layer, tag), tag, **kwargs)

    @staticmethod
    def layer_is_supported(layer: Any) -> bool:
        """Whether the layer has an activation function."""
        return bool(_activations(layer))

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """What the layer computes."""
        return self._inner(inputs, *args, **kwargs)

    def _saved_layer(self) -> Any:
        # A wrapped activation cannot be saved; wrapping the plain one again gives the same layer.
        plain = {name: getattr(self.layer, name).plain for name in _activations(self.layer)}
        saved = {name: keras.activations.serialize(function) for name, function in plain.items()}
        return type(self.layer).from_config(self.layer.get_config() | saved)


def _require_this_keras(layer: Any, wrapper: str) -> None:
    if not isinstance(layer, keras.layers.Layer):
        raise UnsupportedError(
            f"{wrapper} wraps layers of `{keras.__name__}`, which `tf.keras` is here (see TF_USE_LEGACY_KERAS). "
            f"Received: layer={layer!r} (of type {type(layer)})."
        )


def _activations(layer: Any) -> list[str]:
    linear = keras.activations.linear
    return [name for name in _ACTIVATIONS if getattr(layer, name, None) not in (None, linear)]


class _RecordingActivation:
    """An activation function that records the gradient with respect to its input."""

    def __init__(self, plain: Callable[[Any], Any], tag: str) -> None:
        self.plain, self.tag = plain, tag
        self.__name__ = getattr(plain, "__name__", type(plain).__name__)

    def __call__(self, x: Any) -> Any:
        return self.plain(watched(x, self.tag, needed=False))


def _with_recording_activations(layer: Any, tag: str) -> Any:
    names = _activations(layer)
    if not names:
        raise ValueError(
            f"Layer {layer.name} does not use an activation function so is not supported by "
            "keras.ipu.layers.CaptureActivationGradients"
        )
    if hasattr(layer, "cell"):
        raise UnsupportedError(
            f"CaptureActivationGradients cannot look into the time steps of the recurrent layer {layer.name}: its "
            "activations are computed in a loop. Use CaptureUpstreamGradients."
        )
    copy = type(layer).from_config(layer.get_config())
    if layer.built:
        copy.build_from_config(layer.get_build_config())
        copy.set_weights(layer.get_weights())
    for name in names:
        setattr(copy, name, _RecordingActivation(getattr(copy, name), f"{tag}_{name}"))
    return copy
