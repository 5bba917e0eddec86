"""The names of `rnn`."""

from openipu.tensorflow.addons.layers.rnn import (
    ACCEPTED_ACTIVATIONS,
    ACCEPTED_RECURRENT_ACTIVATIONS,
    GRU,
    LSTM,
    POPNN_GRU,
    POPNN_GRU_NUM_GATES,
    POPNN_LSTM,
    POPNN_LSTM_NUM_GATES,
    PopnnGRU,
    PopnnLSTM,
)

__all__ = [
    "ACCEPTED_ACTIVATIONS",
    "ACCEPTED_RECURRENT_ACTIVATIONS",
    "GRU",
    "LSTM",
    "POPNN_GRU",
    "POPNN_GRU_NUM_GATES",
    "POPNN_LSTM",
    "POPNN_LSTM_NUM_GATES",
    "PopnnGRU",
    "PopnnLSTM",
]
