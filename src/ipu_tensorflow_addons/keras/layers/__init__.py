"""The layers of the addons."""

from openipu.tensorflow.addons.layers.ctc import CTCInferenceLayer, CTCLoss, CTCPredictionsLayer
from openipu.tensorflow.addons.layers.dense import Dense, SerialDense
from openipu.tensorflow.addons.layers.dropout import Dropout
from openipu.tensorflow.addons.layers.effective_transformer import EffectiveTransformer
from openipu.tensorflow.addons.layers.embedding_lookup import Embedding
from openipu.tensorflow.addons.layers.f8_convert import ConvertFromF8, ConvertToF8
from openipu.tensorflow.addons.layers.identities import AssumeEqualAcrossReplicas, RecomputationCheckpoint
from openipu.tensorflow.addons.layers.normalization import (
    GroupNorm,
    GroupNormalization,
    InstanceNorm,
    InstanceNormalization,
    LayerNorm,
    LayerNormalization,
)
from openipu.tensorflow.addons.layers.rnn import GRU, LSTM, PopnnGRU, PopnnLSTM

__all__ = [
    "GRU",
    "LSTM",
    "AssumeEqualAcrossReplicas",
    "CTCInferenceLayer",
    "CTCLoss",
    "CTCPredictionsLayer",
    "ConvertFromF8",
    "ConvertToF8",
    "Dense",
    "Dropout",
    "EffectiveTransformer",
    "Embedding",
    "GroupNorm",
    "GroupNormalization",
    "InstanceNorm",
    "InstanceNormalization",
    "LayerNorm",
    "LayerNormalization",
    "PopnnGRU",
    "PopnnLSTM",
    "RecomputationCheckpoint",
    "SerialDense",
]
