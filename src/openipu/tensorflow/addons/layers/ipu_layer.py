"""The base of layers that refuse some of stock Keras' arguments."""

from typing import Any

from openipu.tensorflow.addons.keras import keras


class IPULayer(keras.layers.Layer):
    """A layer that knows which arguments it does not support."""

    def _refuse(self, **arguments: Any) -> None:
        """Refuse every argument that is given."""
        for name, value in arguments.items():
            if value:
                raise NotImplementedError(
                    f"ipu_tensorflow_addons.keras.layers.{type(self).__name__} does not support __init__ argument "
                    f"{name}. Received: {name}={value!r}. Leave it out, or use the layer of stock Keras."
                )
