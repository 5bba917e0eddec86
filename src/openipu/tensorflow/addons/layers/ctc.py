"""Connectionist temporal classification: its loss, and the likeliest labels."""

from typing import Any

import tensorflow as tf

from openipu.tensorflow.addons.keras import keras, registered
from openipu.tensorflow.ipu.ops import nn_ops


@registered
class CTCLoss(keras.layers.Layer):
    """The mean loss of a batch, of shape [1]: models return it, and compile with a loss that passes it on.

    Args:
      blank_index: the class of the blank.
      from_logits: whether the data are logits; otherwise they are logarithms of probabilities.
    """

    def __init__(self, blank_index: int = 0, from_logits: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.blank_index, self.from_logits = blank_index, from_logits

    def call(self, labels: Any, data: Any, label_length: Any, data_length: Any, **kwargs: Any) -> tf.Tensor:
        """The loss of labels [batch, length] given data [time, batch, classes] and their lengths [batch]."""
        loss = nn_ops.ctc_loss_v2 if self.from_logits else nn_ops.ctc_loss_with_log_probs
        label_length, data_length = (tf.reshape(length, [-1]) for length in (label_length, data_length))
        each = loss(labels, data, label_length, data_length, self.blank_index)
        return tf.reshape(tf.reduce_mean(each), [1])

    def build(self, *shapes: Any, **named: Any) -> None:
        """It has no weights."""
        self.built = True

    def compute_output_shape(self, *shapes: Any, **named: Any) -> tuple[int]:
        """One number."""
        return (1,)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {**super().get_config(), "blank_index": self.blank_index, "from_logits": self.from_logits}


class _Decoder(keras.layers.Layer):
    def __init__(
        self, blank_index: int = 0, beam_width: int = 100, top_paths: int = 1, from_logits: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.blank_index, self.beam_width, self.top_paths = blank_index, beam_width, top_paths
        self.from_logits = from_logits

    def build(self, *shapes: Any, **named: Any) -> None:
        """It has no weights."""
        self.built = True

    def _decoded(self, data: Any, data_length: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        decode = nn_ops.ctc_beam_search_decoder if self.from_logits else nn_ops.ctc_beam_search_decoder_with_log_probs
        return decode(data, tf.reshape(data_length, [-1]), self.beam_width, self.top_paths, self.blank_index)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {
            **super().get_config(),
            "blank_index": self.blank_index,
            "beam_width": self.beam_width,
            "top_paths": self.top_paths,
            "from_logits": self.from_logits,
        }


@registered
class CTCInferenceLayer(_Decoder):
    """The likeliest label sequences.

    Args:
      blank_index: the class of the blank.
      beam_width: how many sequences are followed at a time.
      top_paths: how many are returned.
      from_logits: whether the data are logits; otherwise they are logarithms of probabilities.
    """

    def call(self, data: Any, data_length: Any, **kwargs: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Negative logarithms of probabilities, lengths, and labels of data [time, batch, classes]."""
        return self._decoded(data, data_length)


@registered
class CTCPredictionsLayer(_Decoder):
    """The labels [batch, time] of the likeliest sequence, blanks behind its end; arguments as `CTCInferenceLayer`."""

    def call(self, data: Any, data_length: Any, **kwargs: Any) -> tf.Tensor:
        """Labels of data [time, batch, classes]."""
        scores, lengths, labels = self._decoded(data, data_length)
        best = tf.argmin(scores, 1, output_type=tf.int32)
        labels, length = tf.gather(labels, best, batch_dims=1), tf.gather(lengths, best, batch_dims=1)
        valid = tf.range(tf.shape(labels)[1])[None] < length[:, None]
        blank = self.blank_index % int(data.shape[-1])
        return tf.where(valid, labels, blank)
