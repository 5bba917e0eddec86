"""The same four replicas as one process, as two instances and as four: real processes, started by poprun."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

HERE = pathlib.Path(__file__).parent
INSTANCES = (1, 2, 4)


# Programs are small, and compiled more often than run: XLA need not make the best of them.
QUICK = {
    "OPENIPU_PROGRESS": "off", "TF_CPP_MIN_LOG_LEVEL": "3", "XLA_FLAGS": "--xla_backend_optimization_level=0",
}  # fmt: skip


def poprun(*words, timeout=300, **variables):
    command = [sys.executable, "-m", "openipu.cli.poprun", *map(str, words)]
    environment = {**os.environ, **QUICK, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)


def results(program, folder):
    """What every instance of every launch has left, by the number of instances."""
    found = {}
    for count in INSTANCES:
        place = folder / str(count)
        place.mkdir()
        words = ("--num-instances", count, "--num-replicas", 4, "--executable-cache-path", folder / f"cache{count}")
        done = poprun(*words, sys.executable, HERE / program, place)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
        found[count] = [dict(np.load(place / f"{index}.npz")) for index in range(count)]
        found[count, "cache"] = sorted((folder / f"cache{count}").iterdir())
    return found


@pytest.fixture(scope="module")
def torch_results(tmp_path_factory):
    return results("torch_program.py", tmp_path_factory.mktemp("torch"))


@pytest.fixture(scope="module")
def keras_results(tmp_path_factory):
    return results("keras_program.py", tmp_path_factory.mktemp("keras"))


def assert_same(one, other, what):
    """Within a millionth of the largest value."""
    assert one.shape == other.shape
    scale = max(float(np.abs(one).max()), 1e-3) if one.size else 1.0
    assert np.abs(one.astype(np.float64) - other).max(initial=0) <= 1e-6 * scale, what


def weights(found):
    return {name: value for name, value in found.items() if name.startswith("weights")}


@pytest.mark.parametrize("count", INSTANCES[1:])
def test_a_poptorch_classifier_trains_alike_however_its_replicas_are_divided(torch_results, count):
    (alone,), many = torch_results[1], torch_results[count]
    for name in ("plain", "accumulated", "pipelined"):
        together = np.concatenate([one[f"losses {name}"] for one in many], axis=1)
        assert_same(alone[f"losses {name}"], together, name)
        assert together[-5:].mean() < together[:5].mean()
    for one in many:
        for name, value in weights(alone).items():
            assert_same(value, one[name], name)
            # The updates of all instances are the same bits.
            np.testing.assert_array_equal(one[name], many[0][name])


@pytest.mark.parametrize("count", INSTANCES)
def test_groups_of_replicas_are_groups_of_all_instances_replicas(torch_results, count):
    for one in torch_results[count]:
        # Replica r adds r + 1 to the gradient of its group, and a mean divides by the number of all replicas.
        np.testing.assert_allclose(one["grouped"], [[1 - (1 + 2) / 4], [1 - (3 + 4) / 4]], rtol=1e-6)


@pytest.mark.parametrize("count", INSTANCES[1:])
def test_a_keras_network_trains_alike_however_its_replicas_are_divided(keras_results, count):
    (alone,), many = keras_results[1], keras_results[count]
    for one in many:
        for name in ("plain", "accumulated", "pipelined"):
            # Logs and metrics are those of all replicas, the same on every instance.
            assert_same(alone[f"losses {name}"], one[f"losses {name}"], name)
        assert_same(alone["evaluated"], one["evaluated"], "evaluated")
        for name, value in weights(alone).items():
            assert_same(value, one[name], name)
            np.testing.assert_array_equal(one[name], many[0][name])
    assert_same(alone["predicted"], np.concatenate([one["predicted"] for one in many], axis=1), "predicted")


def test_all_instances_go_on_with_the_state_that_the_first_has_restored(keras_results):
    for one in keras_results[2]:
        np.testing.assert_array_equal(one["resumed"], keras_results[2][0]["resumed"])
        assert_same(one["unbroken"], one["resumed"], "resumed")


@pytest.mark.parametrize("count", INSTANCES)
def test_variables_begin_as_those_of_the_first_instance_and_indices_are_global(keras_results, count):
    for index, one in enumerate(keras_results[count]):
        assert one["variable"] == 0.0
        np.testing.assert_array_equal(one["indices"], [6.0, 6.0])  # 0 + 1 + 2 + 3
        total = sum(range(1, count + 1))
        np.testing.assert_allclose(one["reduced on the host"], [total, total / count, 5.0])
        np.testing.assert_array_equal(one["gathered on the host"], [[i, 7] for i in range(count)])
        assert one["reduced in a graph"] == 3.0 * count
        if count > 1:
            assert "do different things" in str(one["different steps"]), index


@pytest.mark.parametrize("count", INSTANCES)
def test_loaders_of_all_instances_give_every_sample_once_in_two_epochs_or_so(torch_results, count):
    parts = [one["partition"] for one in torch_results[count]]
    for epoch in range(2):
        given = np.concatenate([part[epoch] for part in parts])
        assert len(set(given)) == len(given) == 50 // (2 * 4) * 2 * 4
    assert len({i for part in parts for i in part.ravel()}) > 48


@pytest.mark.parametrize("count", INSTANCES)
def test_values_of_the_host_are_exchanged_by_name(torch_results, count):
    total = float(sum(range(count)))
    for index, one in enumerate(torch_results[count]):
        np.testing.assert_allclose(one["average"], [total / count] * 2)
        np.testing.assert_allclose(one["sum"], [total] * 2)
        np.testing.assert_array_equal(one["gathered"], [i for i in range(count) for _ in range(i + 1)])
        assert one["sent"].tolist() == [count - 1 + 7]
        np.testing.assert_allclose(one["mixed"], [total] * 3)
        np.testing.assert_array_equal(one["parameters"], np.zeros((2, 2)))
        np.testing.assert_allclose(one["threads"], [total] * 3)
        assert one["on first"] == (41 + count if index == 0 else -1)
        if count > 1:
            assert "Tensor layouts did not match on all instances" in str(one["mismatch"])


@pytest.mark.parametrize("count", INSTANCES)
def test_instances_that_share_a_cache_compile_every_program_once(torch_results, count):
    # Four trained models, and the one that the first instance uses alone.
    assert [path.suffix for path in torch_results[count, "cache"]] == [".popef"] * 5


@pytest.fixture(scope="module")
def legacy_results(tmp_path_factory):
    """Two workers, as a launcher of MPI and TF_CONFIG would have them."""
    folder = tmp_path_factory.mktemp("legacy")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        first = f"127.0.0.1:{found.getsockname()[1]}"
    processes = []
    for index in range(2):
        cluster = {"cluster": {"worker": [first, "127.0.0.1:1"]}, "task": {"type": "worker", "index": index}}
        given = {
            "TF_CONFIG": json.dumps(cluster), "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": str(index),
            "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": str(index),
            "POPDIST_NUM_LOCAL_REPLICAS": "2", **QUICK,
        }  # fmt: skip
        command = [sys.executable, str(HERE / "legacy_program.py"), str(folder)]
        processes.append(subprocess.Popen(command, env={**os.environ, **given}, stderr=subprocess.PIPE, text=True))
    for process in processes:
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
    return [dict(np.load(folder / f"{index}.npz")) for index in range(2)]


def in_numpy(many, name, epochs=1, bias=True):
    """The linear model of these programs, trained on the mean over all replicas of all instances.

    Returns the losses, [step, replica], the kernel and the bias.
    """
    x = np.concatenate([one[f"{name} x"] for one in many], axis=1).astype(np.float64)
    y = x[..., :2] - x[..., 1:]
    kernel, offset, losses = many[0][f"{name} start"].astype(np.float64), np.zeros(2), []
    for step in range(epochs * len(x)):
        rows, wanted = x[step % len(x)], y[step % len(x)]
        errors = rows @ kernel + offset - wanted
        losses.append((errors**2).mean((1, 2)))
        scale = 2 / errors[0].size / len(rows)
        kernel = kernel - 0.1 * scale * np.einsum("rbi,rbj->ij", rows, errors)
        offset = offset - 0.1 * scale * errors.sum((0, 1)) * bias
    return np.array(losses), kernel, offset


@pytest.mark.parametrize("name", ["workers", "popdist"])
def test_keras_2_trains_on_all_instances_as_numpy_does(legacy_results, name):
    losses, kernel, bias = in_numpy(legacy_results, name, epochs=2)
    for one in legacy_results:
        np.testing.assert_array_equal(one[f"{name} start"], legacy_results[0][f"{name} start"])
        np.testing.assert_array_equal(one[f"{name} kernel"], legacy_results[0][f"{name} kernel"])
        np.testing.assert_allclose(one[f"{name} kernel"], kernel, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(one[f"{name} bias"], bias, rtol=1e-5, atol=1e-6)
        # History and metrics are those of all instances, predictions those of this one's data.
        np.testing.assert_allclose(one[f"{name} losses"], losses.reshape(2, -1).mean(1), rtol=1e-5)
        everyone = np.concatenate([other[f"{name} x"] for other in legacy_results], axis=1)
        errors = everyone @ kernel + bias - (everyone[..., :2] - everyone[..., 1:])
        np.testing.assert_allclose(one[f"{name} evaluated"], (errors**2).mean(), rtol=1e-4)
        predicted = (one[f"{name} x"] @ kernel + bias).reshape(-1, 2)
        np.testing.assert_allclose(one[f"{name} predicted"], predicted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["queues", "popdist sessions", "workers sessions"])
def test_loops_over_queues_train_on_all_instances_with_and_without_sessions(legacy_results, name):
    losses, kernel, _ = in_numpy(legacy_results, name, bias=False)
    for index, one in enumerate(legacy_results):
        # Variables begin as those of the first instance, and stay equal; an outfeed has the instance's own replicas.
        np.testing.assert_array_equal(one[f"{name} start"], legacy_results[0][f"{name} start"])
        np.testing.assert_array_equal(one[f"{name} kernel"], legacy_results[0][f"{name} kernel"])
        np.testing.assert_allclose(one[f"{name} kernel"], kernel, rtol=1e-5, atol=1e-6)
        own = one[f"{name} x"].shape[1]
        np.testing.assert_allclose(one[f"{name} losses"], losses[:, index * own : (index + 1) * own], rtol=1e-5)
        if name != "queues":
            np.testing.assert_array_equal(one[f"{name} others"], legacy_results[0][f"{name} others"])
