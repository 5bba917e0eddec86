"""Stock Keras' LSTM and GRU in programs for the IPU: their time loop is the core's kernel."""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import tensorflow as tf

from openipu.compiler.recurrent import GRU, LSTM
from openipu.tensorflow.ops.emit import capturing
from openipu.tensorflow.ops.recurrent_layers import gru, lstm, shown, time_first


def install(version: Any) -> None:
    """Let the recurrent layers of one Keras find the kernel while a program for the IPU is captured."""
    if version.__name__.endswith("keras3"):
        for layer, function, cell in ((version.LSTM, lstm, LSTM), (version.GRU, gru, GRU)):
            layer.inner_loop = _keras3_loop(layer.inner_loop, function, cell, _activation_names(version))
        return
    for module, kind, function in ((version.lstm, "lstm", lstm), (version.gru, "gru", gru)):
        name = f"{kind}_with_backend_selection"
        setattr(module, name, _keras2_loop(getattr(module, name), function, module))


def _activation_names(version: Any) -> dict[Callable, str]:
    functions = version.activations
    names = {getattr(functions, name): name for name in ("linear", "tanh", "sigmoid", "relu", "softmax")}
    return names | {functions.hard_sigmoid: "hard_sigmoid_sixth"}


def _keras3_loop(stock: Callable, function: Callable, kind: Any, names: dict[Callable, str]) -> Callable:
    @functools.wraps(stock)
    def inner_loop(self: Any, sequences: Any, initial_state: Any, mask: Any, training: bool = False) -> Any:
        cell = self.cell
        chosen: list[Any] = [names.get(cell.activation), names.get(cell.recurrent_activation)]
        if not capturing() or None in chosen or (training and self.recurrent_dropout):
            return stock(self, sequences, initial_state, mask, training)
        if training and self.dropout:
            sequences = sequences * tf.expand_dims(cell.get_dropout_mask(sequences[:, 0, :]), 1)
        # A single state is not in a list.
        state, mask = tf.nest.flatten(initial_state), mask[0] if isinstance(mask, (list, tuple)) else mask
        settings: list[Any] = [*chosen, cell.reset_after] if kind is GRU else chosen
        weights = [_as(w, sequences) for w in (cell.kernel, cell.recurrent_kernel, cell.bias)]
        return _run(function, sequences, state, weights, kind(*settings), mask, self.go_backwards,
                    self.zero_output_for_mask, False)  # fmt: skip

    return inner_loop


def _keras2_loop(stock: Callable, function: Callable, module: ModuleType) -> Callable:
    @functools.wraps(stock)
    def selection(**given: Any) -> Any:
        if not capturing() or given["sequence_lengths"] is not None:
            return stock(**given)
        state = [given[name] for name in ("init_h", "init_c") if name in given]
        weights = [given[name] for name in ("kernel", "recurrent_kernel", "bias")]
        last, outputs, states = _run(function, given["inputs"], state, weights, None, given["mask"],
                                     given["go_backwards"], given["zero_output_for_mask"],
                                     given["time_major"])  # fmt: skip
        utilities = module.gru_lstm_utils
        return last, outputs, *states, utilities.runtime(utilities.RUNTIME_CPU)

    return selection


def _run(function: Callable, sequences: Any, state: list, weights: list, cell: Any, mask: Any, backwards: bool,
         zeros: bool, time_major: bool) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:  # fmt: skip
    """The last output, all outputs and the last state, as Keras' own loop returns them."""
    x = sequences if time_major else time_first(sequences)
    if mask is not None:
        mask = tf.cast(mask, tf.bool)
        mask = mask if time_major else time_first(mask)
        mask = tf.reshape(mask, mask.shape[:2])
    if backwards:
        x, mask = tf.reverse(x, [0]), None if mask is None else tf.reverse(mask, [0])
    state = [_as(s, sequences) for s in state]
    hidden, states = function(x, state, *weights, mask=mask, cell=cell)
    outputs = shown(hidden, mask, zeros)
    return outputs[-1], outputs if time_major else time_first(outputs), states


def _as(value: Any, like: tf.Tensor) -> Any:
    """In mixed precision weights are wider than what they multiply."""
    return None if value is None else tf.cast(value, like.dtype)
