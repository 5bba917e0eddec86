"""LSTM and GRU with stock Keras' weights, on the core's recurrent kernel."""

from typing import Any

import tensorflow as tf

from openipu.compiler.recurrent import GRU as GRUCell
from openipu.compiler.recurrent import LSTM as LSTMCell
from openipu.tensorflow.addons.activations import activation_name
from openipu.tensorflow.addons.keras import IS_KERAS_2, keras, registered
from openipu.tensorflow.addons.layers.dropout import checked_seed
from openipu.tensorflow.boundary import Kept
from openipu.tensorflow.ipu.ops import rand_ops
from openipu.tensorflow.ops.recurrent_layers import gru, lstm, time_first

POPNN_LSTM = "lstm"
POPNN_GRU = "gru"
POPNN_LSTM_NUM_GATES = 4
POPNN_GRU_NUM_GATES = 3
ACCEPTED_ACTIVATIONS = ["tanh", "relu", "softmax", "sigmoid", "hard_sigmoid"]
ACCEPTED_RECURRENT_ACTIVATIONS = ["tanh", "softmax", "sigmoid", "hard_sigmoid"]

_REFUSED_UNLESS = {"use_bias": True, "recurrent_dropout": 0, "go_backwards": False, "unroll": False}
_SETTINGS = (
    "units", "use_bias", "dropout", "recurrent_dropout", "implementation", "return_sequences", "return_state",
    "go_backwards", "stateful", "unroll", "seed", "time_major", "options", "options_bwd",
)  # fmt: skip
_INITIALIZERS = ("kernel_initializer", "recurrent_initializer", "bias_initializer")


class _PopnnRNN(keras.layers.Layer):
    """What both have: arguments, weights, dropout, and states kept between batches."""

    _kind = ""
    _gates = 0
    _states = 0

    def __init__(self, given: dict[str, Any], **kwargs: Any) -> None:
        """`given`: the arguments of the constructor that stock Keras has too."""
        if given["activity_regularizer"] is not None:
            self._refuse("activity_regularizer")
        super().__init__(**kwargs)
        for name, value in given.items():
            if name in _REFUSED_UNLESS and value != _REFUSED_UNLESS[name]:
                self._refuse(f"{name}={value!r}")
            if name.endswith(("_regularizer", "_constraint")) and value is not None:
                self._refuse(name)
        if given["implementation"] not in (1, 2):
            self._refuse(f"implementation={given['implementation']!r}")
        if tf.as_dtype(self.compute_dtype) not in (tf.float16, tf.float32):
            raise ValueError(
                f"Only support float16 and float32 for the IPU {self._kind.upper()} layer. Received: "
                f"dtype={self.compute_dtype}."
            )
        if not 0 <= given["dropout"] < 1:
            raise ValueError(f"The rate must be in the range [0, 1), but was {given['dropout']}")
        for name in _SETTINGS:
            setattr(self, name, given[name])
        self.activation = activation_name("activation", given["activation"], ACCEPTED_ACTIVATIONS)
        self.recurrent_activation = activation_name(
            "recurrent_activation", given["recurrent_activation"], ACCEPTED_RECURRENT_ACTIVATIONS
        )
        for name in _INITIALIZERS:
            setattr(self, name, _initializer(given[name], given["seed"]))
        self.dropout_seed = checked_seed("dropout_seed", given["dropout_seed"])
        self.partials_dtype = tf.as_dtype(given["partials_dtype"])
        # Saved with models, but no weight: those are the ones of stock Keras' layer.
        self._kept = Kept()

    @property
    def states(self) -> list[Any] | None:
        """The variables in which a stateful layer keeps its states; None if it keeps none."""
        return self._kept.states

    def _refuse(self, what: str) -> None:
        raise ValueError(
            f"IPU custom {self._kind.upper()} layer does not support {what}. Leave it out, or use "
            f"keras.layers.{self._kind.upper()}, which runs on the same kernel."
        )

    @property
    def num_units(self) -> int:
        """Units of the layer."""
        return self.units

    @property
    def input_size(self) -> int:
        """Features of the inputs, known once the layer is built."""
        if not self.built:
            raise ValueError(f"The input size of {self.name} is unknown before it is built.")
        return int(self.kernel.shape[0])

    @property
    def canonical_weight_shape(self) -> tuple[int, int]:
        """The shape of all weights together."""
        return (self.input_size + self.units, self._gates * self.units)

    @property
    def canonical_bias_shapes(self) -> list[tuple[int, ...]]:
        """The shape of each bias."""
        return [self._bias_shape()]

    def _bias_shape(self) -> tuple[int, ...]:
        return (self._gates * self.units,)

    def build(self, input_shape: Any) -> None:
        """Makes the weights, and the states of a stateful layer."""
        shape = _shape_of_sequence(input_shape)
        if len(shape) != 3:
            raise ValueError(f"Expected inputs of rank 3, [batch, time, features]. Received: shape {shape}.")
        if shape[-1] is None:
            raise ValueError(f"The last axis of the inputs must have a known size. Received: shape {shape}.")
        width = self._gates * self.units
        self.kernel = self.add_weight(name="kernel", shape=(shape[-1], width), initializer=self.kernel_initializer)
        self.recurrent_kernel = self.add_weight(
            name="recurrent_kernel", shape=(self.units, width), initializer=self.recurrent_initializer
        )
        self.biases = self.add_weight(name="biases", shape=self._bias_shape(), initializer=self._bias_initializer())
        if self.stateful:
            self._kept.states = self._make_states(shape[1] if self.time_major else shape[0])
        self.built = True

    def _make_states(self, batch_size: int | None) -> list[Any]:
        if batch_size is None:
            raise ValueError(
                "A stateful layer must know its batch size. Give the model's Input a batch size, as in "
                "`Input(shape, batch_size=16)`."
            )
        shape = self.state_shape(batch_size)
        with tf.init_scope():
            zeros = tf.zeros(shape, self.variable_dtype)
            return [tf.Variable(zeros, trainable=False, name=f"{self.name}/state_{i}") for i in range(self._states)]

    def _bias_initializer(self) -> Any:
        return self.bias_initializer

    def get_bias(self) -> tf.Tensor:
        """The bias."""
        return tf.convert_to_tensor(self.biases)

    def state_shape(self, batch_size: int) -> tuple[int, int]:
        """The shape of each state."""
        return (batch_size, self.units)

    def reset_states(self) -> None:
        """Begin the next batch with zeros."""
        for state in self.states or ():
            state.assign(tf.zeros(state.shape, state.dtype))

    reset_state = reset_states

    def call(self, inputs: Any, mask: Any = None, training: Any = None, initial_state: Any = None) -> Any:
        """The last output, or all of them, and the last state if asked for."""
        if any(part is not None for part in tf.nest.flatten(mask)):
            raise NotImplementedError(
                f"IPU custom {self._kind.upper()} layer does not support masks. Use keras.layers.{self._kind.upper()}, "
                "which does, and runs on the same kernel."
            )
        if isinstance(inputs, (list, tuple)):
            # As stock Keras 2 takes them: the sequence, and the state to begin with.
            inputs, initial_state = inputs[0], list(inputs[1:]) or initial_state
        x = tf.cast(inputs, self.compute_dtype)
        # A tensor that says whether the model trains counts as True, as in the original.
        if self.dropout and training is not None and (not isinstance(training, (bool, int)) or training):
            sizes: Any = [1 if axis == (0 if self.time_major else 1) else None for axis in range(3)]
            x = rand_ops.dropout(x, self.dropout, sizes, self.dropout_seed)
        if not self.time_major:
            x = time_first(x)
        weights = (self.kernel, self.recurrent_kernel, self.get_bias())
        kernel, recurrent_kernel, bias = (tf.cast(tf.convert_to_tensor(weight), x.dtype) for weight in weights)
        outputs, states = self._run(x, self._first_state(x, initial_state), kernel, recurrent_kernel, bias)
        for variable, state in zip(self.states or (), states, strict=False):
            variable.assign(tf.cast(state, variable.dtype))
        if self.return_sequences:
            result = outputs if self.time_major else time_first(outputs)
        else:
            result = outputs[-1]
        return (result, *states) if self.return_state else result

    def compute_output_shape(self, input_shape: Any) -> Any:
        """That of the result, or of the result and of all states."""
        shape = _shape_of_sequence(input_shape)
        batch = shape[1] if self.time_major else shape[0]
        result = (*shape[:2], self.units) if self.return_sequences else (batch, self.units)
        return (result, *([(batch, self.units)] * self._states)) if self.return_state else result

    def _first_state(self, x: tf.Tensor, given: Any) -> list[tf.Tensor]:
        if given is None and self.states is not None:
            given = [tf.convert_to_tensor(state) for state in self.states]
        if given is None:
            zeros = tf.zeros([tf.shape(x)[1] if x.shape[1] is None else x.shape[1], self.units], x.dtype)
            return [zeros] * self._states
        states = list(given) if isinstance(given, (list, tuple)) else [given]
        if len(states) != self._states:
            raise ValueError(
                f"initial_state must be {self._states} tensor(s) of shape [batch, {self.units}]. "
                f"Received: {len(states)}."
            )
        return [tf.cast(state, x.dtype) for state in states]

    def _run(self, x: tf.Tensor, state: list, kernel: tf.Tensor, recurrent_kernel: tf.Tensor, bias: tf.Tensor) -> Any:
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        config = {name: getattr(self, name) for name in (*_SETTINGS, "activation", "recurrent_activation")}
        config |= {name: keras.initializers.serialize(getattr(self, name)) for name in _INITIALIZERS}
        config["dropout_seed"] = None if self.dropout_seed is None else list(self.dropout_seed)
        return {**super().get_config(), **config, "partials_dtype": self.partials_dtype.name}


def _shape_of_sequence(shape: Any) -> tuple[int | None, ...]:
    """The shape of the inputs, which may come with those of the state to begin with."""
    first = shape[0]
    return tuple(first if isinstance(first, (list, tuple, tf.TensorShape)) else shape)


def _kernel_name(activation: str) -> str:
    """Stock Keras 3 has another slope of the hard sigmoid than Keras 2 and the IPU's library."""
    return "hard_sigmoid_sixth" if activation == "hard_sigmoid" and not IS_KERAS_2 else activation


def _initializer(given: Any, seed: int | None) -> Any:
    initializer = keras.initializers.get(given)
    config = initializer.get_config() if seed is not None and hasattr(initializer, "get_config") else {}
    if config.get("seed", 0) is None:
        return type(initializer).from_config({**config, "seed": seed})
    return initializer


@registered
class PopnnLSTM(_PopnnRNN):
    """Long short-term memory, with the arguments and weights of `keras.layers.LSTM`.

    Not supported, as on the IPU: `use_bias=False`, regularizers, constraints, `recurrent_dropout`, `go_backwards`,
    `unroll`, masks. `time_major` says that the inputs' first axis is time. `dropout_seed` fixes what is dropped.
    `partials_dtype`, `options` and `options_bwd` tune the IPU's library and change nothing here.
    """

    _kind, _gates, _states = POPNN_LSTM, POPNN_LSTM_NUM_GATES, 2

    def __init__(
        self, units: int, activation: Any = "tanh", recurrent_activation: Any = "sigmoid", use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform", recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros", unit_forget_bias: bool = True, kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None, bias_regularizer: Any = None, activity_regularizer: Any = None,
        kernel_constraint: Any = None, recurrent_constraint: Any = None, bias_constraint: Any = None,
        dropout: float = 0.0, dropout_seed: Any = None, recurrent_dropout: float = 0.0, implementation: int = 2,
        return_sequences: bool = False, return_state: bool = False, go_backwards: bool = False,
        stateful: bool = False, unroll: bool = False, partials_dtype: Any = tf.float32, seed: int | None = None,
        time_major: bool = False, options: dict | None = None, options_bwd: dict | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        given = {name: value for name, value in locals().items() if name not in ("self", "kwargs", "__class__")}
        super().__init__(given, **kwargs)
        self.unit_forget_bias = unit_forget_bias

    def _bias_initializer(self) -> Any:
        if not self.unit_forget_bias:
            return self.bias_initializer
        parts, units = self.bias_initializer, self.units

        def initial(shape: Any, dtype: Any = None) -> tf.Tensor:
            values = [parts((units,), dtype=dtype), tf.ones([units], dtype), parts((2 * units,), dtype=dtype)]
            return tf.concat([tf.cast(v, dtype or tf.float32) for v in values], 0)

        return initial

    def _run(self, x: tf.Tensor, state: list, kernel: tf.Tensor, recurrent_kernel: tf.Tensor, bias: tf.Tensor) -> Any:
        cell = LSTMCell(_kernel_name(self.activation), _kernel_name(self.recurrent_activation))
        return lstm(x, state, kernel, recurrent_kernel, bias, cell=cell)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {**super().get_config(), "unit_forget_bias": self.unit_forget_bias}


@registered
class PopnnGRU(_PopnnRNN):
    """Gated recurrent units, with the arguments and weights of `keras.layers.GRU`.

    What is not supported, and the further arguments, are those of `PopnnLSTM`.
    """

    _kind, _gates, _states = POPNN_GRU, POPNN_GRU_NUM_GATES, 1

    def __init__(
        self, units: int, activation: Any = "tanh", recurrent_activation: Any = "sigmoid", use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform", recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros", kernel_regularizer: Any = None, recurrent_regularizer: Any = None,
        bias_regularizer: Any = None, activity_regularizer: Any = None, kernel_constraint: Any = None,
        recurrent_constraint: Any = None, bias_constraint: Any = None, dropout: float = 0.0,
        dropout_seed: Any = None, recurrent_dropout: float = 0.0, implementation: int = 2,
        return_sequences: bool = False, return_state: bool = False, go_backwards: bool = False,
        stateful: bool = False, unroll: bool = False, reset_after: bool = True, seed: int | None = None,
        partials_dtype: Any = tf.float32, time_major: bool = False, options: dict | None = None,
        options_bwd: dict | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        given = {name: value for name, value in locals().items() if name not in ("self", "kwargs", "__class__")}
        super().__init__(given, **kwargs)
        self.reset_after = reset_after

    def _bias_shape(self) -> tuple[int, ...]:
        return (2, 3 * self.units) if self.reset_after else (3 * self.units,)

    def _run(self, x: tf.Tensor, state: list, kernel: tf.Tensor, recurrent_kernel: tf.Tensor, bias: tf.Tensor) -> Any:
        cell = GRUCell(_kernel_name(self.activation), _kernel_name(self.recurrent_activation), self.reset_after)
        return gru(x, state, kernel, recurrent_kernel, bias, cell=cell)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {**super().get_config(), "reset_after": self.reset_after}


LSTM, GRU = PopnnLSTM, PopnnGRU
