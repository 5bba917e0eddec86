"""Operations are the same in graphs of TensorFlow 1, where Python compares tensors by identity and not by value."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ipu.ops import (
    embedding_ops,
    f8_ops,
    image_ops,
    math_ops,
    nn_ops,
    normalization_ops,
    slicing_ops,
    statistics_ops,
)

RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((4, 6)).astype(np.float32), RNG.standard_normal((6, 2)).astype(np.float32)
ROWS = np.array([0, 0, 1, 2], np.int32)
LOGITS = RNG.standard_normal((7, 2, 4)).astype(np.float32)
LABELS, LENGTHS, TIMES = np.array([[1, 1, 2], [3, 2, 0]]), np.array([3, 2]), np.array([7, 6])

OPERATIONS = {
    "histogram": lambda: statistics_ops.histogram(tf.constant(A[0]), tf.constant([-0.5, 0.5])),
    "histogram_update": lambda: statistics_ops.histogram_update(
        tf.ones(3), tf.constant(A[0]), tf.constant([0.2, 0.5]), absolute_of_input=True
    ),
    "fixed_width_bins": lambda: statistics_ops.fixed_width_bins(tf.constant(A[0]), 4),
    "segment_sum": lambda: math_ops.segment_sum(tf.constant(A), tf.constant(ROWS), 3),
    "serialized_matmul": lambda: math_ops.serialized_matmul(tf.constant(A), tf.constant(B), 2, "a_rows_b_columns"),
    "sequence_slice": lambda: slicing_ops.sequence_slice(
        tf.constant(A), tf.constant(A + 1), tf.constant([1, 2]), tf.constant([3, 0]), tf.constant([0, 2]), True
    ),
    "sequence_slice_unpack": lambda: slicing_ops.sequence_slice_unpack(
        tf.constant(A), tf.constant([1, 2]), tf.constant([3, 0]), 3
    ),
    "normalise_image": lambda: image_ops.normalise_image(
        tf.constant(A[:2].reshape(2, 2, 3)), [0.1, 0.2, 0.3], [1.0, 2.0, 4.0], 0.5
    ),
    "float8": lambda: f8_ops.convert_from_f8(
        f8_ops.convert_to_f8(tf.constant(A.astype(np.float16)), f8_ops.create_metadata(f8_ops.Format.F143, 1))
    ),
    "embedding_lookup": lambda: embedding_ops.embedding_lookup(tf.constant(A), tf.constant(ROWS), 2),
    "group_norm": lambda: normalization_ops.group_norm(tf.constant(A), groups=3, training=True),
    "gelu": lambda: nn_ops.gelu(tf.constant(A)),
    "hard_sigmoid": lambda: nn_ops.hard_sigmoid(tf.constant(A)),
    "ctc_loss": lambda: nn_ops.ctc_loss(
        tf.constant(LABELS), tf.nn.log_softmax(LOGITS), tf.constant(LENGTHS), tf.constant(TIMES), 0
    ),
    "ctc_loss_with_logits": lambda: nn_ops.ctc_loss_with_logits(
        tf.constant(LABELS), tf.constant(LOGITS), tf.constant(LENGTHS), tf.constant(TIMES), 0
    ),
}


@pytest.fixture
def compared_by_identity():
    tf.compat.v1.disable_tensor_equality()
    yield
    tf.compat.v1.enable_tensor_equality()


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_the_same_where_tensors_are_compared_by_identity(name, request):
    expected = np.asarray(OPERATIONS[name]())
    request.getfixturevalue("compared_by_identity")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        made = OPERATIONS[name]()
        session.run(tf.compat.v1.global_variables_initializer())
        np.testing.assert_allclose(session.run(made), expected, rtol=1e-5, atol=1e-6)
