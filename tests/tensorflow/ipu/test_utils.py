"""ipu.utils: devices, seeds, synthetic data and what is refused."""

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from openipu import instances
from openipu.errors import InstanceError
from openipu.tensorflow.configuration import seeds, system
from openipu.tensorflow.ipu import config, utils


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.delenv("OPENIPU_SYSTEM", raising=False)
    monkeypatch.delenv("TF_POPLAR_FLAGS", raising=False)
    config.reset_ipu_configuration()
    yield
    config.reset_ipu_configuration()
    seeds.forget()


def test_config_names_are_the_same_objects():
    for name in (
        "IPUConfig",
        "SelectionOrder",
        "ExecutionProfileType",
        "DeviceConnectionType",
        "MergeRemoteBuffersBehaviour",
        "SchedulingAlgorithm",
        "get_ipu_config",
        "configure_ipu_system",
    ):
        assert getattr(utils, name) is getattr(config, name)


def test_number_of_ipus():
    assert utils.get_num_of_ipus_in_device("/device:IPU:0") == 1
    assert system.active_config() is None
    cfg = utils.IPUConfig()
    cfg.auto_select_ipus = [1, 4]
    cfg.configure_ipu_system()
    assert utils.get_num_of_ipus_in_device("/device:IPU:0") == 1
    assert utils.get_num_of_ipus_in_device("/job:localhost/replica:0/task:0/device:IPU:1") == 4
    with pytest.raises(ValueError, match=r"/device:IPU:0, /device:IPU:1. Received: '/device:IPU:2'"):
        utils.get_num_of_ipus_in_device("/device:IPU:2")
    with pytest.raises(ValueError, match=r"'/cpu:0'"):
        utils.get_num_of_ipus_in_device("/cpu:0")


def test_number_of_ipus_is_the_total_over_processes(monkeypatch):
    cfg = utils.IPUConfig()
    cfg.auto_select_ipus = 2
    cfg.experimental.multi_replica_distribution.process_count = 4
    with pytest.raises(InstanceError, match="Instance 0 of 4 does not know where to meet the others"):
        cfg.configure_ipu_system()
    # The others would be there.
    monkeypatch.setattr(instances, "join", lambda index, count: None)
    cfg.configure_ipu_system()
    assert utils.get_num_of_ipus_in_device("/device:IPU:0") == 8


def test_running_on_ipu_model(monkeypatch):
    assert not utils.running_on_ipu_model()
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--max_infeed_threads=2 --use_ipu_model")
    assert utils.running_on_ipu_model() and config.running_on_ipu_model()


@given(st.integers(-(2**63), 2**64 - 1), st.integers(1, 5))
def test_seeds_repeat_after_a_reset(start, count):
    utils.reset_ipu_seed(start)
    first = [seeds.draw() for _ in range(count)]
    utils.reset_ipu_seed(start)
    assert [seeds.draw() for _ in range(count)] == first
    assert len(set(first)) == count
    assert all(0 <= drawn.value < 2**64 and not drawn.identical_replicas for drawn in first)


def test_seeds_are_random_without_a_reset():
    assert seeds.draw() != seeds.draw()
    first = seeds.draw(3)
    seeds.forget()
    assert seeds.draw(3) != first


def test_seeds_belong_to_a_device():
    utils.reset_ipu_seed(1, device="/device:IPU:1", experimental_identical_replicas=True)
    first = seeds.draw(1)
    assert first.identical_replicas
    utils.reset_ipu_seed(-1, "/device:IPU:0")
    utils.reset_ipu_seed(1, "/device:IPU:1")
    assert seeds.draw(1).value == first.value
    assert seeds.draw(0).value != first.value


@pytest.mark.parametrize("wrong", ["1", 1.5, None])
def test_seeds_are_integers(wrong):
    with pytest.raises(TypeError):
        utils.reset_ipu_seed(wrong)


def test_synthetic_data(monkeypatch):
    category = utils.SyntheticDataCategory
    assert [(c.name, int(c)) for c in category] == [
        ("Seed", 0),
        ("Infeed", 1),
        ("Outfeed", 2),
        ("HostEmbedding", 3),
        ("Parameters", 4),
        ("Unknown", 5),
    ]
    assert category.Name(3) == "HostEmbedding" and category.Value("Outfeed") == 2
    assert not any(map(utils.use_synthetic_data_for, category))
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--synthetic_data_categories=hostembedding,seed")
    assert [c.name for c in category if utils.use_synthetic_data_for(c)] == ["Seed", "HostEmbedding"]
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_synthetic_data")
    assert utils.use_synthetic_data_for(category.Infeed)


def test_initial_values_move_to_the_cpu():
    with tf.Graph().as_default() as graph:
        with tf.device("/device:GPU:0"):
            start = tf.random.uniform([2])
            variable = tf.compat.v1.get_variable("v", initializer=start * 2, use_resource=True)
            other = variable + 1
        utils.move_variable_initialization_to_cpu()
        assert start.op.device == variable.initializer.device == "/device:CPU:0"
        assert other.op.device == "/device:GPU:0"
    with tf.Graph().as_default():
        utils.move_variable_initialization_to_cpu(graph)
