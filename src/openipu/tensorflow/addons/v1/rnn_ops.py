"""Recurrent layers in the style of TensorFlow 1: time first, one combined kernel, variables by `get_variable`."""

import re
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from openipu.compiler.recurrent import GRU, LSTM
from openipu.tensorflow.addons.activations import activation_name
from openipu.tensorflow.ops.recurrent_layers import gru, lstm, shown, time_first
from openipu.tensorflow.ops.shapes import sizes

POPNN_LSTM = "lstm"
POPNN_GRU = "gru"
POPNN_DYNAMIC_GRU = "dynamic_gru"
POPNN_AUGRU = "augru"
POPNN_LSTM_NUM_GATES = 4
POPNN_GRU_NUM_GATES = 3
POPNN_DYNAMIC_GRU_NUM_GATES = 3
POPNN_AUGRU_NUM_GATES = 3

_ACTIVATIONS = ("tanh", "relu", "softmax", "sigmoid", "hard_sigmoid")
_RECURRENT_ACTIVATIONS = ("tanh", "softmax", "sigmoid", "hard_sigmoid")

# The state of an LSTM: memory and hidden state, in this order.
LSTMStateTuple = namedtuple("LSTMStateTuple", ("c", "h"))


class _PopnnRNN:
    """What all have: arguments, weights, and the scope that they are made in."""

    _kind = ""
    _gates = 0
    trainable = True

    def __init__(
        self, num_units: int, dtype: Any = tf.float32, partials_dtype: Any = tf.float32, seed: int | None = None,
        weights_initializer: Any = None, bias_initializer: Any = None, activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid", return_state: bool = True, name: str | None = None,
        options: dict | None = None, options_bwd: dict | None = None,
    ) -> None:  # fmt: skip
        self.dtype = tf.as_dtype(dtype)
        if self.dtype not in (tf.float16, tf.float32):
            raise ValueError(f"Only support float16 and float32. Received: dtype={self.dtype.name}.")
        if not isinstance(num_units, int) or num_units < 1:
            raise ValueError(f"num_units must be a positive integer. Received: num_units={num_units!r}.")
        self.num_units, self.partials_dtype, self.seed = num_units, tf.as_dtype(partials_dtype), seed
        self.activation = activation_name("activation", activation, _ACTIVATIONS)
        self.recurrent_activation = activation_name(
            "recurrent_activation", recurrent_activation, _RECURRENT_ACTIVATIONS
        )
        self.return_state = return_state
        self.options, self.options_bwd = options, options_bwd
        self._named = name is not None
        self.name = name or _snake_case(type(self).__name__)
        self.built = False
        self.kernel: Any = None
        self._weights_initializer = weights_initializer or tf.compat.v1.glorot_uniform_initializer(seed)
        self._bias_initializer = bias_initializer or tf.compat.v1.zeros_initializer()

    @property
    def num_layers(self) -> int:
        """There is one."""
        return 1

    @property
    def saveable(self) -> bool:
        """Weights are saved as ordinary variables."""
        return False

    @property
    def input_size(self) -> int:
        """Features of the inputs, known once the layer is built."""
        if self.kernel is None:
            raise ValueError(f"The input size of {self.name} is unknown before it is built.")
        return int(self.kernel.shape[0]) - self.num_units

    @property
    def canonical_weight_shape(self) -> tuple[int, int]:
        """The shape of the kernel."""
        return (self.input_size + self.num_units, self._gates * self.num_units)

    @property
    def canonical_bias_shapes(self) -> list[tuple[int | None, ...]]:
        """The shapes of the biases."""
        return [tuple(tf.TensorShape(bias.shape).as_list()) for bias in self._biases]

    @property
    def trainable_variables(self) -> list[Any]:
        """Kernel and biases."""
        return [self.kernel, *self._biases] if self.built else []

    @property
    def non_trainable_variables(self) -> list[Any]:
        """There are none."""
        return []

    variables = weights = trainable_weights = trainable_variables
    non_trainable_weights = losses = updates = non_trainable_variables

    def state_shape(self, batch_size: int) -> tuple[int, int]:
        """The shape of each state."""
        return (batch_size, self.num_units)

    def build(self, input_shape: Any) -> None:
        """Makes the variables."""
        shape = tf.TensorShape(input_shape)
        if shape.rank != 3 or shape[-1] is None:
            raise ValueError(f"Expected inputs [time, batch, features] of rank 3, features known. Received: {shape}.")
        features: Any = shape[-1]
        kernel = (features + self.num_units, self._gates * self.num_units)
        with self._variable_scope():
            self.kernel = self._variable("kernel", kernel, self._weights_initializer)
            self._biases = self._make_biases()
        self.built = True

    def _variable_scope(self) -> Any:
        """Layers of one name share variables; one without a name gets a name that no other layer has."""
        if self._named or tf.compat.v1.executing_eagerly_outside_functions():
            return tf.compat.v1.variable_scope(self.name, reuse=tf.compat.v1.AUTO_REUSE)
        return tf.compat.v1.variable_scope(None, default_name=self.name)

    def _make_biases(self) -> list[Any]:
        return [self._variable("biases", self._bias_shape(), self._bias_initializer)]

    def _bias_shape(self) -> tuple[int, ...]:
        return (self._gates, self.num_units)

    def _variable(self, name: str, shape: tuple[int, ...], initializer: Any) -> Any:
        if tf.compat.v1.executing_eagerly_outside_functions():
            # Without a graph of TensorFlow 1 there is no store of variables: the layer keeps its own.
            with tf.init_scope():
                return tf.Variable(lambda: initializer(shape, dtype=self.dtype), name=f"{self.name}/{name}")
        return tf.compat.v1.get_variable(name, shape, self.dtype, initializer, use_resource=True)

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        inputs = tf.convert_to_tensor(inputs)
        if inputs.dtype != self.dtype:
            raise ValueError(f"Expected inputs of type {self.dtype.name}. Received: {inputs.dtype.name}.")
        if not self.built:
            self.build(inputs.shape)
        with tf.name_scope(self.name):
            return self.call(inputs, *args, **kwargs)

    call: Callable

    def _kernels(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The parts for inputs and state."""
        kernel = tf.convert_to_tensor(self.kernel)
        return kernel[: self.input_size], kernel[self.input_size :]

    def _zeros(self, inputs: tf.Tensor) -> tf.Tensor:
        return tf.zeros([sizes(inputs)[1], self.num_units], self.dtype)


def _snake_case(name: str) -> str:
    """ "PopnnDynamicLSTM" as "popnn_dynamic_lstm"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _within(inputs: tf.Tensor, seq_len: Any) -> tf.Tensor:
    """[time, batch]: whether a time belongs to its sequence."""
    return tf.range(sizes(inputs)[0])[:, None] < tf.cast(seq_len, tf.int32)[None, :]


def _state_tuple() -> Any:
    """TensorFlow's own where the program's Keras lets it have one."""
    try:
        return tf.compat.v1.nn.rnn_cell.LSTMStateTuple
    except AttributeError:
        return LSTMStateTuple


class PopnnLSTM(_PopnnRNN):
    """Long short-term memory over inputs [time, batch, features].

    Args:
      num_units: of the layer.
      dtype: of inputs and weights, float16 or float32.
      partials_dtype, options, options_bwd: tune the IPU's library; they change nothing here.
      seed: of the initialiser of the weights.
      weights_initializer, bias_initializer: glorot_uniform and zeros by default.
      activation, recurrent_activation: by name.
      return_state: whether to return the last state.
      name: of the layer and of the scope of its variables.
    """

    _kind, _gates = POPNN_LSTM, POPNN_LSTM_NUM_GATES

    def call(self, inputs: tf.Tensor, initial_state: Any = None, training: bool = True) -> Any:
        """The outputs [time, batch, units] and the last state, an LSTMStateTuple."""
        return self._run(inputs, initial_state, None)

    def _run(self, inputs: tf.Tensor, initial_state: Any, mask: tf.Tensor | None) -> Any:
        if initial_state is not None and getattr(initial_state, "_fields", ()) != LSTMStateTuple._fields:
            raise ValueError(f"initial_state must be an LSTMStateTuple. Received: {type(initial_state).__name__}.")
        zeros = self._zeros(inputs)
        state = [zeros, zeros] if initial_state is None else [initial_state.h, initial_state.c]
        bias = tf.reshape(tf.convert_to_tensor(self._biases[0]), [-1])
        cell = LSTM(self.activation, self.recurrent_activation)
        hidden, (h, c) = lstm(inputs, state, *self._kernels(), bias, mask, cell)
        outputs = shown(hidden, mask, zeros=True)
        return (outputs, _state_tuple()(c, h)) if self.return_state else outputs


class PopnnDynamicLSTM(PopnnLSTM):
    """The same over sequences of different lengths; outputs behind a sequence's end are zero."""

    def call(self, inputs: tf.Tensor, seq_len: Any, initial_state: Any = None, training: bool = True) -> Any:
        """The outputs [time, batch, units] and the state at the end of every sequence."""
        return self._run(inputs, initial_state, _within(inputs, seq_len))


class PopnnGRU(_PopnnRNN):
    """Gated recurrent units over inputs [time, batch, features]; arguments as of `PopnnLSTM`.

    Args:
      reset_after: whether the reset gate comes after the product with the state.
    """

    _kind, _gates = POPNN_GRU, POPNN_GRU_NUM_GATES

    def __init__(
        self, num_units: int, dtype: Any = tf.float32, partials_dtype: Any = tf.float32, seed: int | None = None,
        weights_initializer: Any = None, bias_initializer: Any = None, activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid", return_state: bool = True, name: str | None = None,
        reset_after: bool = False, options: dict | None = None, options_bwd: dict | None = None,
    ) -> None:  # fmt: skip
        super().__init__(num_units, dtype, partials_dtype, seed, weights_initializer, bias_initializer, activation,
                         recurrent_activation, return_state, name, options, options_bwd)  # fmt: skip
        self.reset_after = reset_after

    def _bias_shape(self) -> tuple[int, ...]:
        return (3, 2, self.num_units) if self.reset_after else (3, self.num_units)

    def _bias(self) -> tf.Tensor:
        bias = tf.convert_to_tensor(self._biases[0])
        if self.reset_after:
            return tf.reshape(tf.transpose(bias, [1, 0, 2]), [2, -1])
        return tf.reshape(bias, [-1])

    def call(self, inputs: tf.Tensor, initial_state: Any = None, training: bool = True) -> Any:
        """The outputs [time, batch, units] and the last state [batch, units]."""
        return self._run(inputs, initial_state)

    def _run(self, inputs: tf.Tensor, initial_state: Any, seq_len: Any = None, attention: Any = None,
             time_major: bool = True) -> Any:  # fmt: skip
        if not time_major:
            inputs, attention = time_first(inputs), None if attention is None else time_first(attention)
        mask = None if seq_len is None else _within(inputs, seq_len)
        state = self._zeros(inputs) if initial_state is None else tf.convert_to_tensor(initial_state)
        cell = GRU(self.activation, self.recurrent_activation, self.reset_after)
        hidden, (last,) = gru(inputs, [state], *self._kernels(), self._bias(), mask, cell, attention)
        outputs = shown(hidden, mask, zeros=True)
        outputs = outputs if time_major else time_first(outputs)
        return (outputs, last) if self.return_state else outputs


class PopnnDynamicGRU(PopnnGRU):
    """The same over sequences of different lengths; outputs behind a sequence's end are zero."""

    _kind = POPNN_DYNAMIC_GRU

    def call(self, inputs: tf.Tensor, seq_len: Any, initial_state: Any = None, training: bool = True,
             time_major: bool = True) -> Any:  # fmt: skip
        """The outputs and the state at the end of every sequence; inputs are [batch, time, …] unless `time_major`."""
        return self._run(inputs, initial_state, seq_len, time_major=time_major)


class PopnnAUGRU(PopnnGRU):
    """Gated recurrent units whose update gate is scaled by what attention leaves: `(1 - score) * update`."""

    _kind = POPNN_AUGRU

    def _make_biases(self) -> list[Any]:
        if self.reset_after:
            return super()._make_biases()
        ones = tf.compat.v1.ones_initializer()
        return [self._variable("bias_r_u", (2, self.num_units), ones),
                self._variable("bias_c", (1, self.num_units), tf.compat.v1.zeros_initializer())]  # fmt: skip

    def _bias(self) -> tf.Tensor:
        if self.reset_after:
            return super()._bias()
        reset, update = tf.unstack(tf.convert_to_tensor(self._biases[0]))
        return tf.concat([update, reset, tf.convert_to_tensor(self._biases[1])[0]], 0)

    def call(self, inputs: tf.Tensor, seq_len: Any, attention_score: Any, initial_state: Any = None,
             training: bool = True, time_major: bool = True) -> Any:  # fmt: skip
        """As of `PopnnDynamicGRU`, with a score [time, batch] between 0 and 1."""
        attention = tf.cast(attention_score, self.dtype)
        return self._run(inputs, initial_state, seq_len, attention, time_major)
