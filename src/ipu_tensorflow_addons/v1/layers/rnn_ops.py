"""The names of `rnn_ops`."""

from openipu.tensorflow.addons.v1.rnn_ops import (
    POPNN_AUGRU,
    POPNN_AUGRU_NUM_GATES,
    POPNN_DYNAMIC_GRU,
    POPNN_DYNAMIC_GRU_NUM_GATES,
    POPNN_GRU,
    POPNN_GRU_NUM_GATES,
    POPNN_LSTM,
    POPNN_LSTM_NUM_GATES,
    LSTMStateTuple,
    PopnnAUGRU,
    PopnnDynamicGRU,
    PopnnDynamicLSTM,
    PopnnGRU,
    PopnnLSTM,
)

__all__ = [
    "POPNN_AUGRU",
    "POPNN_AUGRU_NUM_GATES",
    "POPNN_DYNAMIC_GRU",
    "POPNN_DYNAMIC_GRU_NUM_GATES",
    "POPNN_GRU",
    "POPNN_GRU_NUM_GATES",
    "POPNN_LSTM",
    "POPNN_LSTM_NUM_GATES",
    "LSTMStateTuple",
    "PopnnAUGRU",
    "PopnnDynamicGRU",
    "PopnnDynamicLSTM",
    "PopnnGRU",
    "PopnnLSTM",
]
