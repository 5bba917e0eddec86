"""Models of published figures, captured as users write them: Keras, PopTorch, and a transformer in plain JAX."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import attrs
import jax
import jax.numpy as jnp
import numpy as np

from openipu.model import Options
from openipu.program import Pipeline, Plan, Program, Slot, marks


@attrs.frozen(eq=False)
class Capture:
    """A program before it is compiled, and what its front end asked of an IPU."""

    program: Program
    plan: Plan
    options: Options


class _Stop(Exception):
    """Nothing is to be compiled: what was captured is all that is wanted."""


@contextlib.contextmanager
def _capturing(module: str) -> Iterator[list[Capture]]:
    found: list[Capture] = []

    def watch(program: Program, plan: Plan, setting: Any) -> None:
        found.append(Capture(program, plan, setting.asked))
        raise _Stop

    with mock.patch(f"{module}.watch_for", lambda *_: watch), contextlib.suppress(_Stop):
        yield found


def keras_training(layers: Callable[[Any], list], shape: tuple[int, ...], batch: int, one_hot: bool) -> Capture:
    """The training step of a Keras model on one IPU."""
    import keras
    from tensorflow.python import ipu

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    loss = "categorical_crossentropy" if one_hot else "sparse_categorical_crossentropy"
    labels = np.zeros((batch, 10), np.float32) if one_hot else np.zeros((batch,), np.int32)
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential([keras.Input(shape), *layers(keras.layers)])
        model.compile(loss=loss, optimizer="adam", metrics=["accuracy"])
        with _capturing("openipu.tensorflow.executor.setting") as found:
            model.fit(np.zeros((batch, *shape), np.float32), labels, batch_size=batch, verbose=0)
    return found[0]


def mnist_cnn(layers: Any) -> list:
    """The network of the Keras tutorial: 34,826 parameters."""
    return [
        layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(), layers.Conv2D(64, 3, activation="relu"),
        layers.MaxPooling2D(), layers.Flatten(), layers.Dropout(0.5), layers.Dense(10, activation="softmax"),
    ]  # fmt: skip


def mnist_mlp(layers: Any) -> list:
    """The smallest network of the same tutorials."""
    return [layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dense(10, activation="softmax")]


def poptorch_training(model: Any, inputs: tuple, optimizer: Callable, options: Any) -> Capture:
    """The training step of a module."""
    import poptorch

    trained = poptorch.trainingModel(model, options, optimizer(model.parameters()))
    with _capturing("openipu.torch.executor.session") as found:
        trained.compile(*inputs)
    return found[0]


def poptorch_inference(model: Any, inputs: tuple, options: Any) -> Capture:
    """The forward pass of a module."""
    import poptorch

    ready = poptorch.inferenceModel(model.eval(), options)
    with _capturing("openipu.torch.executor.session") as found:
        ready.compile(*inputs)
    return found[0]


def loading_tutorial() -> Any:
    """The network of PopTorch's data-loading tutorial, for images of 128 x 128."""
    from torch import nn

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(1, 5, 3)
            self.pool = nn.MaxPool2d(2, 2)
            self.conv2 = nn.Conv2d(5, 12, 5)
            self.norm = nn.GroupNorm(3, 12)
            self.fc1 = nn.Linear(41772, 100)
            self.fc2 = nn.Linear(100, 10)
            self.log_softmax = nn.LogSoftmax(dim=1)
            self.loss = nn.NLLLoss()

        def forward(self, x: Any, labels: Any) -> Any:
            relu = nn.functional.relu
            x = self.pool(relu(self.conv1(x)))
            x = self.norm(relu(self.conv2(x))).flatten(start_dim=1)
            x = self.log_softmax(self.fc2(relu(self.fc1(x))))
            return x, self.loss(x, labels)

    return Network()


def resnet50(training: bool) -> Any:
    """ResNet-50 v1.5 in float16; in training every residual block's result is kept, the rest computed again."""
    from torch import nn

    import poptorch

    def unit(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs)]

    class Block(nn.Module):
        def __init__(self, inputs: int, width: int, stride: int) -> None:
            super().__init__()
            outputs = 4 * width
            self.main = nn.Sequential(
                *unit(inputs, width, 1), nn.ReLU(), *unit(width, width, 3, stride), nn.ReLU(), *unit(width, outputs, 1)
            )
            other = unit(inputs, outputs, 1, stride) if inputs != outputs or stride > 1 else [nn.Identity()]
            self.shortcut = nn.Sequential(*other)

        def forward(self, x: Any) -> Any:
            x = nn.functional.relu(self.main(x) + self.shortcut(x))
            return poptorch.recomputationCheckpoint(x) if training else x

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers: list[nn.Module] = [*unit(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
            inputs = 64
            for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
                for i in range(blocks):
                    layers.append(Block(inputs, width, stride if i == 0 else 1))
                    inputs = 4 * width
            self.layers = nn.Sequential(*layers)
            self.fc = nn.Linear(inputs, 1000)
            self.loss = nn.CrossEntropyLoss()

        def forward(self, x: Any, labels: Any = None) -> Any:
            x = self.fc(self.layers(x).mean((2, 3)))
            return (x, self.loss(x, labels)) if labels is not None else x

    return Network().half()


@attrs.frozen
class Encoder:
    """Stages of transformer blocks, of which attention and feed-forward halves count one each.

    Attributes:
      halves: half layers of every stage.
      hidden, heads: of the model; feed-forward layers are four times as wide.
      sequence, micro_batch: of the data.
    """

    halves: tuple[int, ...]
    hidden: int
    heads: int
    sequence: int
    micro_batch: int
    dropout: float = 0.1

    def capture(self, accumulation: int, replicas: int, options: Options) -> Capture:
        """Its training by plain gradient descent, one stage on each IPU."""
        wide = 4 * self.hidden
        kinds = [i % 2 for i in range(sum(self.halves))]
        shapes = [shape for kind in kinds for shape in self._shapes(kind, wide)]
        stages = len(self.halves)
        slots = tuple(Slot(f"half{i}/weight", shape, np.float16) for i, shape in enumerate(shapes))
        batch = Slot("hidden states", (self.micro_batch, self.sequence, self.hidden), np.float16)

        def forward(weights: list[jax.Array], x: jax.Array, key: jax.Array) -> jax.Array:
            position, weights = 0, list(weights)
            for stage, halves in enumerate(self.halves):
                with marks.part(stage):
                    for _ in range(halves):
                        kind = kinds[position]
                        own = [weights.pop(0) for _ in self._shapes(kind, wide)]
                        keys = jax.random.split(jax.random.fold_in(key, position), 2)
                        x = (self._attention if kind == 0 else self._feed_forward)(x, own, keys)
                        position += 1
                        if kind == 1:
                            # Every layer's result is kept, the rest computed again.
                            with marks.kept():
                                x = jnp.copy(x)
            return jnp.sum(x.astype(jnp.float32))

        def step(shared: Any, local: Any, fed: Any, key: jax.Array) -> tuple:
            # The first stage of a model has embeddings before it, so the gradient of what it is given is wanted too.
            gradients, seen = jax.grad(forward, argnums=(0, 1))(list(shared), fed[0], key)
            return gradients, [], [jnp.sum(seen)]

        def update(shared: Any, local: Any, gradients: Any) -> tuple:
            return [w - g * jnp.asarray(0.01, w.dtype) for w, g in zip(shared, gradients, strict=True)], {}

        program = Program("encoder", slots, (), (batch,), step, update, needs_key=True)
        pipeline = Pipeline(stages, device_mapping=tuple(range(stages)), recompute=True)
        plan = Plan(accumulation, replicas, accumulation, pipeline=pipeline)
        return Capture(program, plan, options)

    def _shapes(self, kind: int, wide: int) -> list[tuple[int, ...]]:
        norms = [(self.hidden,), (self.hidden,)]
        if kind == 0:
            return [
                (self.hidden, 3 * self.hidden),
                (3 * self.hidden,),
                (self.hidden, self.hidden),
                (self.hidden,),
                *norms,
            ]
        return [(self.hidden, wide), (wide,), (wide, self.hidden), (self.hidden,), *norms]

    def _attention(self, x: jax.Array, weights: list, keys: jax.Array) -> jax.Array:
        project, bias, out, out_bias, scale, shift = weights
        size = self.hidden // self.heads
        made = (x @ project + bias).reshape(*x.shape[:2], 3, self.heads, size)
        query, key, value = (made[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
        scores = query @ key.swapaxes(-1, -2) * jnp.asarray(size**-0.5, x.dtype)
        chosen = self._dropped(jax.nn.softmax(scores), keys[0])
        seen = (chosen @ value).transpose(0, 2, 1, 3).reshape(x.shape)
        return _normalised(x + self._dropped(seen @ out + out_bias, keys[1]), scale, shift)

    def _feed_forward(self, x: jax.Array, weights: list, keys: jax.Array) -> jax.Array:
        wider, bias, back, back_bias, scale, shift = weights
        made = jax.nn.gelu(x @ wider + bias, approximate=False) @ back + back_bias
        return _normalised(x + self._dropped(made, keys[0]), scale, shift)

    def _dropped(self, x: jax.Array, key: jax.Array) -> jax.Array:
        kept = jax.random.bernoulli(key, 1 - self.dropout, x.shape)
        return jnp.where(kept, x / jnp.asarray(1 - self.dropout, x.dtype), jnp.zeros((), x.dtype))


def _normalised(x: jax.Array, scale: jax.Array, shift: jax.Array) -> jax.Array:
    mean = jnp.mean(x, -1, keepdims=True)
    spread = jnp.mean(jnp.square(x - mean), -1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(spread + jnp.asarray(1e-5, x.dtype)) * scale + shift
