"""The likeliest labels of connectionist temporal classification, in programs for the IPU and on the host."""

from typing import Any

import tensorflow as tf

from openipu.compiler import beam_search
from openipu.tensorflow.ops.emit import capturing, emit_many
from openipu.tensorflow.stablehlo import custom_call


@tf.autograph.experimental.do_not_convert
def decode(
    log_probs: tf.Tensor, lengths: tf.Tensor, blank: int, beam_width: int, top_paths: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Negative logarithms of probabilities [batch, paths], lengths [batch, paths], labels [batch, paths, time]."""
    steps, batch, _ = log_probs.shape
    kinds = (log_probs.dtype, tf.int32, tf.int32)
    shapes = ([batch, top_paths], [batch, top_paths], [batch, top_paths, steps])
    settings = {"blank": blank, "beam_width": beam_width, "top_paths": top_paths}
    if capturing() and log_probs.shape.is_fully_defined():
        specs = [tf.TensorSpec(shape, kind) for shape, kind in zip(shapes, kinds, strict=True)]
        scores, ends, labels = emit_many("ctc_decode", [log_probs, lengths], specs, **settings)
    else:

        def call(values: Any, ends: Any) -> tuple:
            return beam_search.decode_on_host(values, ends, **settings)

        scores, ends, labels = tf.numpy_function(call, [log_probs, lengths], kinds, stateful=False)
        scores, ends, labels = (tf.ensure_shape(v, s) for v, s in zip((scores, ends, labels), shapes, strict=True))
    return -scores, ends, labels


@custom_call("openipu.ctc_decode")
def _ctc_decode(operands: list, config: dict[str, Any], kinds: tuple) -> list:
    return list(beam_search.decode(*operands, **config))
