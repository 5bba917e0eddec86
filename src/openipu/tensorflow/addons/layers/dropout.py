"""Dropout."""

from collections.abc import Sequence
from typing import Any

from openipu.tensorflow.addons.keras import keras, registered
from openipu.tensorflow.ipu.ops import rand_ops


@registered
class Dropout(keras.layers.Layer):
    """Sets elements to zero at random while the model trains, and scales the others.

    Args:
      rate: the probability of an element to become zero.
      noise_shape: the shape of the random choice; 1 where all elements along an axis share it.
      seed: two int32 numbers that fix the choice; without them every step and replica has its own.
    """

    def __init__(
        self, rate: float, noise_shape: Sequence[int] | None = None, seed: Sequence[int] | None = None, **kwargs: Any
    ) -> None:
        self.ref = kwargs.pop("ref", True)
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"The rate must be in the range [0, 1), but was {rate}")
        self.rate, self.noise_shape = rate, noise_shape
        self.seed = checked_seed("seed", seed)
        self.supports_masking = True

    def call(self, inputs: Any, training: Any = None) -> Any:
        """The inputs, thinned out while training."""
        if not training:
            return inputs
        return rand_ops.dropout(inputs, self.rate, self.noise_shape, self.seed, self.name, ref=self.ref)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """That of the inputs."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        seed = None if self.seed is None else list(self.seed)
        shape = None if self.noise_shape is None else list(self.noise_shape)
        return {**super().get_config(), "rate": self.rate, "noise_shape": shape, "seed": seed}


def checked_seed(name: str, seed: Any) -> tuple[int, int] | None:
    """A seed as the pair of numbers that random operations of the IPU take; one number is the first of a pair."""
    if seed is None:
        return None
    pair = tuple(int(number) for number in (seed if hasattr(seed, "__len__") else (seed, 0)))
    if len(pair) != 2:
        raise ValueError(f"{name} must be two int32 numbers. Received: {name}={seed!r}.")
    return pair
