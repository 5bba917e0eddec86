"""Tables on the host are looked up by programs and updated by gradients, as NumPy says."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

ops = ipu.embedding_ops
v1 = tf.compat.v1
TABLE = np.arange(12, dtype=np.float32).reshape(6, 2)
IDS = np.array([[0, 2], [2, 5], [1, 1], [7, -3]], np.int32)


def configured(ipus):
    ipu.config.reset_ipu_configuration()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.configure_ipu_system()
    return ipu.ipu_strategy.IPUStrategy()


def trained(spec, ipus=1):
    """The table after a loop over all ids, whose loss is half the sum of the squares of the rows."""
    strategy = configured(ipus)
    with strategy.scope():
        embedding = ops.create_host_embedding("table", TABLE.shape, tf.float32, optimizer_spec=spec, initializer=TABLE)
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(IDS))
        infeed.initializer  # noqa: B018

        def body(ids):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(embedding.lookup(ids) ** 2) / 2
            tape.gradient(loss, embedding.trainable_variables)

        @tf.function(jit_compile=True)
        def program():
            ipu.loops.repeat(len(IDS) // ipus, body, [], infeed)

        with embedding.register():
            strategy.run(program)
    ipu.config.reset_ipu_configuration()
    return embedding.get_embedding_tensor().numpy()


def expected(rate, together):
    """The same in NumPy: the gradients of so many elements are added up before they are applied."""
    table = TABLE.copy()
    for group in np.clip(IDS, 0, 5).reshape(-1, together, 2):
        total = np.zeros_like(table)
        for ids in group:
            np.add.at(total, ids, table[ids])
        table -= rate * total
    return table


def test_rows_are_updated_at_once():
    np.testing.assert_allclose(trained(ops.HostEmbeddingOptimizerSpec(0.1)), expected(0.1, 1), rtol=1e-6)


def test_rows_are_updated_after_several_gradients():
    np.testing.assert_allclose(trained(ops.HostEmbeddingSGDGAOptimizerSpec(0.1, 2)), expected(0.1, 2), rtol=1e-6)


def test_all_replicas_update_one_table():
    np.testing.assert_allclose(trained(ops.HostEmbeddingOptimizerSpec(0.1), ipus=2), expected(0.1, 2), rtol=1e-6)


def test_a_table_without_an_optimizer_stays_as_it_is(strategy):
    embedding = ops.create_host_embedding("table", (3, 2), tf.float32, "ENCODING")
    assert embedding.trainable_variables == [] and not embedding.get_embedding_tensor().numpy().any()
    rows = strategy.run(tf.function(lambda: embedding.lookup(tf.constant([0, 9]))))
    assert rows.shape == (2, 2)


def test_what_a_table_refuses():
    table = tf.Variable(TABLE)
    with pytest.raises(NotImplementedError, match="Use `lookup`"):
        ops.HostEmbedding("table", table)(3)
    with pytest.raises(ValueError, match="TOKEN, ENCODING"):
        ops.HostEmbedding("table", table, "ROWS")
    with pytest.raises(ValueError, match="accumulation_factor must be a positive integer"):
        ops.HostEmbeddingSGDGAOptimizerSpec(0.1, 0)
    with v1.Graph().as_default(), pytest.raises(ValueError, match="needs the session"):
        ops.HostEmbedding("table", table).register().__enter__()
