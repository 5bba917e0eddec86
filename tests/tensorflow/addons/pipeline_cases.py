"""Models divided into stages by the addons, with whichever Keras is chosen: `test_keras2` runs them with Keras 2."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

import pva
from ipu_tensorflow_addons.keras.experimental.auto_pipeline.prediction import (
    max_throughput,
    partition,
    partition_evaluate,
)
from ipu_tensorflow_addons.keras.experimental.auto_pipeline.utils import keras_utils, profiler, pva_utils, types_utils
from openipu.errors import ReportError
from openipu.tensorflow.addons.keras import keras
from openipu.tensorflow.configuration import devices

layers = keras.layers
BATCH, FEATURES = 4, 24


def noise(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def sequential():
    """Three layers that are alike, and one that is a hundred times larger than the others."""
    model = keras.Sequential([keras.Input((FEATURES,)), *(layers.Dense(FEATURES, "relu") for _ in range(3))])
    model.add(layers.Dropout(0.0))
    model.add(layers.Dense(2000, "tanh"))
    model.add(layers.Dense(3))
    return compiled(model)


def functional():
    """Blocks around which values skip, one of them a model of its own, and a layer that is called twice."""
    inputs = keras.Input((FEATURES,))
    shared, x = layers.Dense(FEATURES), inputs
    for _ in range(2):
        x = layers.Add()([shared(x), x])
    inside = keras.Input((FEATURES,))
    block = keras.Model(inside, layers.Dense(FEATURES, "relu")(layers.Dense(FEATURES, "relu")(inside)))
    return compiled(keras.Model(inputs, layers.Dense(3)(block(x))))


def compiled(model):
    model.compile(keras.optimizers.SGD(0.05), keras.losses.MeanSquaredError(), steps_per_execution=8)
    return model


def data(batch_size):
    return noise(4 * batch_size, FEATURES), noise(4 * batch_size, 3, seed=1)


@pytest.fixture(scope="module")
def profiles():
    return {make: partition.create_model_profile(make, BATCH, {}) for make in (sequential, functional)}


@pytest.fixture
def clean():
    ipu.config.reset_ipu_configuration()
    yield
    ipu.config.reset_ipu_configuration()


def test_layers_that_are_alike_have_one_profile(profiles):
    first, second, third, _, large, last = profiles[sequential]["layers"]
    assert first["type"] == second["type"] == third["type"] and first["name"] != second["name"]
    assert first["cycles"] == third["cycles"] and large["cycles"]["forward"] > first["cycles"]["forward"] > 0
    # Weights and bias, with an accumulator each.
    assert first["memory"]["parameters"] == {first["name"]: 2 * 4 * (FEATURES + 1) * FEATURES}
    assert large["memory"]["activations"] == large["memory"]["outputs"] == 4 * BATCH * 2000
    assert last["memory"]["inputs"] == large["memory"]["outputs"] and not last["memory"]["activations"]
    assert profiles[sequential]["crossing"] == [4 * BATCH * n for n in (*[FEATURES] * 4, 2000)]


def test_a_range_keeps_what_two_layers_need_once(profiles):
    first, second = profiles[sequential]["layers"][:2]
    together = types_utils.get_empty_range_info()
    for layer in (first, second):
        types_utils.aggregate_info_inplace(together, layer)
    memory, one = together["memory"], 4 * BATCH * FEATURES
    # Both results; that of the first is what the second takes.
    assert (memory["inputs"], memory["activations"]) == (one, 2 * one)
    assert sum(memory["code"].values()) == sum(first["memory"]["code"].values())
    assert together["cycles"]["forward"] == 2 * first["cycles"]["forward"]
    copied = types_utils.copy_layer_info(first)
    copied["memory"]["parameters"].clear()
    assert first["memory"]["parameters"]


def by_hand(profile, cluster, stages):
    """The least cost of the slowest stage, over all divisions into contiguous stages."""
    count = len(profile["layers"])

    def best(first, left):
        if left == 0:
            return 0.0 if first == count else np.inf
        costs = [np.inf]
        for end in range(first + 1, count + 1):
            if end < count and profile["joined"][end - 1]:
                continue
            cycles = [layer["cycles"] for layer in profile["layers"][first:end]]
            own = sum(one["forward"] + one["backward"] for one in cycles)
            sizes = ([profile["crossing"][first - 1]] if first else []) + profile["crossing"][end - 1 : end]
            transfer = sum(sizes) / cluster["connections"][0]["bandwidth"]
            costs.append(max(own + transfer, best(end, left - 1)))
        return min(costs)

    return best(0, stages)


@pytest.mark.parametrize("make", [sequential, functional])
@pytest.mark.parametrize("stages", [2, 3])
def test_the_slowest_stage_is_as_fast_as_can_be(make, stages, profiles):
    profile, cluster = profiles[make], types_utils.cluster_of(stages)
    found = partition.get_auto_pipeline_partition_by_cycle_and_transfer(profile, cluster, {})
    assert sorted(set(found)) == list(range(stages)) and found == sorted(found)
    estimated = partition_evaluate.estimate_pipelined_model_profile(profile, cluster, found)
    cost = max_throughput.get_pipeline_cost(estimated, BATCH)
    assert cost == pytest.approx(by_hand(profile, cluster, stages) / BATCH)
    names = [name for stage in estimated for name in stage["layers"]]
    assert names == [layer["name"] for layer in profile["layers"]]


def test_memory_decides_where_time_does_not(profiles):
    profile, cluster = profiles[sequential], types_utils.cluster_of(2)

    def fullest(division):
        stages = partition_evaluate.estimate_pipelined_model_profile(profile, cluster, division)
        return max(stage["memory"]["total"] for stage in stages)

    fastest = partition.get_auto_pipeline_partition_by_cycle_and_transfer(profile, cluster, {})
    smallest = min(([0] * first + [1] * (6 - first) for first in range(1, 6)), key=fullest)
    assert fullest(smallest) < fullest(fastest)
    cluster["memory"] = fullest(smallest)
    assert partition.get_auto_pipeline_partition_by_cycle_and_transfer(profile, cluster, {}) == smallest
    with pytest.raises(ValueError, match="does not fit into 2 IPUs"):
        partition.get_auto_pipeline_partition_by_cycle_and_transfer(profile, cluster, {"memory_proportion": 0.99})


def test_matrices_have_a_row_for_each_first_layer(profiles):
    profile, cluster = profiles[functional], types_utils.cluster_of(2)
    costs = partition.get_model_cost_matrix(profile, np.inf)
    transfers = partition.get_transfer_cost_matrix(profile, cluster)
    cycles = [layer["cycles"]["forward"] + layer["cycles"]["backward"] for layer in profile["layers"]]
    assert costs[4, 6] == pytest.approx(sum(cycles[4:6])) and costs[0, 7] == pytest.approx(sum(cycles))
    # Layers 0 to 2 hold two calls of one layer.
    assert np.isinf(costs[0, 2]) and np.isinf(costs[1, 4]) and np.isinf(costs[3, 3])
    assert np.isinf(partition.get_model_cost_matrix(profile, 0)).all()
    assert transfers[1, 4, 7] == types_utils.transfer_cycle(cluster, 1, profile, 4, 7) > 0 and transfers[0, 0, 7] == 0


def test_calls_of_a_shared_layer_stay_together(profiles):
    profile = profiles[functional]
    found = partition.get_auto_pipeline_partition_by_cycle_and_transfer(profile, types_utils.cluster_of(3), {})
    assert found[0] == found[1] == found[2]
    with pytest.raises(ValueError, match=r"that can be separated, 5 .*n_ipu=8"):
        partition.get_auto_pipeline_partition_by_cycle_and_transfer(profile, types_utils.cluster_of(8), {})


@pytest.mark.parametrize("make", [sequential, functional])
def test_a_divided_model_trains_like_stock_keras(make, profiles, clean):
    found = partition.get_auto_pipeline_partition_by_cycle_and_transfer(profiles[make], types_utils.cluster_of(2), {})
    x, y = noise(64, FEATURES), noise(64, 3, seed=1)
    stock = make()
    weights = stock.get_weights()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = make()
        partition.assign(model, found)
        model.set_weights(weights)
        model.set_pipelining_options(
            gradient_accumulation_steps_per_replica=8, gradient_accumulation_reduction_method="mean"
        )
        model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, epochs=2)
    stock.fit(x, y, batch_size=8 * BATCH, shuffle=False, verbose=0, epochs=2)
    for received, expected in zip(model.get_weights(), stock.get_weights(), strict=True):
        np.testing.assert_allclose(received, expected, rtol=1e-4, atol=1e-5)


def test_estimates_are_close_to_the_whole_program(profiles, clean, tmp_path):
    profile, cluster = profiles[sequential], types_utils.cluster_of(2)
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    config.configure_ipu_system()
    found = partition.get_auto_pipeline_partition_by_cycle_and_transfer(profile, cluster, {})
    estimated = partition_evaluate.estimate_pipelined_model_profile(profile, cluster, found)
    actual = partition_evaluate.profile_pipelined_model(sequential, data, BATCH, found, None, tmp_path)
    assert devices.active_config().auto_select_ipus == [4]
    for off in types_utils.compare_pipelined_model_profile(estimated, actual):
        # The loss, its metric and the rest of the optimizer belong to no layer; in a model as small they are seen.
        assert abs(off["cycles"]) < 0.5 and abs(off["memory"]) < 0.35 and abs(off["transfer"]) < 0.01
    assert partition_evaluate.parse_pipelined_model_profile(str(tmp_path / "profile.pop")) == actual


def test_the_largest_batch_that_fits_is_found():
    def arguments(config):
        # Enough for the weights and 16 samples of a stage, not for 64.
        cluster = types_utils.cluster_of(config["ipus"])
        cluster["memory"] = 30_000_000
        return {"batch_size": config["batch"], "cluster_info": cluster}

    def create_model(args):
        return sequential()

    found = max_throughput.search_for_max_throughput(
        {"batch": [1, 16, 64, 4096]}, {"ipus": [2]}, arguments, create_model
    )
    assert found["config"]["ipus"] == 2 and found["config"]["batch"] in (16, 64) and len(found["profile"]) == 2
    assert max(stage["memory"]["total"] for stage in found["profile"]) <= 30_000_000
    with pytest.raises(ValueError, match="none of the settings"):
        max_throughput.search_for_max_throughput({"batch": [4096]}, {"ipus": [2]}, arguments, create_model)
    with pytest.raises(ValueError, match="no batch_size"):
        max_throughput.search_for_max_throughput({}, {}, lambda config: {}, create_model)


def test_reports_of_layers_are_read(clean, tmp_path):
    helper = profiler.ReportHelper(tmp_path)
    strategy = profiler.create_strategy(1, helper)
    assert devices.active_config().compilation_poplar_options["autoReport.directory"] == str(tmp_path)
    with strategy.scope():
        model = sequential()
    assignment = model.get_pipeline_stage_assignment()[4]
    path = profiler.profile_layer_from_assignment(assignment, BATCH, strategy, helper)
    assert helper.find_reports() == [path]
    report, name = pva.openReport(path), assignment.layer.name
    pva_utils.check_report(report, name)
    with pytest.raises(ReportError, match="no operations of layer other"):
        pva_utils.check_report(report, "other")
    own, whole = pva_utils.get_layer_cycle(report, name, True), pva_utils.get_single_ipu_cycles(report)
    assert 0 < own["forward"] <= whole["forward"] * 1.001 and 0 < own["backward"] <= whole["backward"]
    steps = report.execution.steps
    assert sum(map(pva_utils.get_program_step_cycle, steps)) == pytest.approx(
        sum(own.values()) + whole["update"], rel=0.05
    )
    assert pva_utils.get_exec_step_cycle(steps[0]) == steps[0].ipus[0].cycles
    assert pva_utils.get_parameter_from_always_live(report) == 2 * 4 * (FEATURES + 1) * 2000
    parts = (pva_utils.get_vertex_code, pva_utils.get_control_code, pva_utils.get_internal_exchange_code)
    code = sum(part(report) for part in parts)
    categories = report.document["memory"][0]["categories"]
    assert code == categories["code and vertex state"] + categories["exchange code"]
    assert pva_utils.get_vertex_instance_state(report) == pva_utils.get_parameter_from_not_always_alive(report) == 0
    assert 0 < pva_utils.get_max_live_memory(report) <= pva_utils.get_total_memory(report) * 1.001
    with_copies = pva_utils.get_pipeline_stage_cycles(report, compute_cycle_only=False)
    assert with_copies[0]["forward"] >= pva_utils.get_pipeline_stage_cycles(report)[0]["forward"]
    with pytest.raises(ValueError, match="2 IPUs of the report"):
        pva_utils.get_total_memory(report, 5)
    info = partition.parse_layer_profile(assignment, path, {})
    assert info["name"] == name and info["type"] == keras_utils.get_assignment_layer_type(assignment, BATCH)
    helper.clear_reports()
    assert not helper.find_reports()


def test_sizes_of_tensors(clean):
    assert keras_utils.prepend_batchsize((3, 2), 8) == (8, 3, 2)
    assert keras_utils.tf_tensor_size(keras.Input((3, 2), dtype="float16"), 8) == 96
    assert keras_utils.tf_tensor_size(tf.zeros([5, 2]), 8) == 40
    doubled = keras_utils.tf_nested_map_structure_tensor(lambda t: 2 * t, {"a": tf.ones([2]), "b": "text"})
    assert doubled["b"] == "text" and float(doubled["a"][0]) == 2
    assert float(keras_utils.tf_nested_map_structure_all_tensor(lambda t: 2 * t, [tf.ones([])])[0]) == 2
    with pytest.raises(ValueError, match="tensors only"):
        keras_utils.tf_nested_map_structure_all_tensor(lambda t: t, [tf.ones([]), 3])
    with ipu.ipu_strategy.IPUStrategy().scope():
        assert keras_utils.parse_model_intermediate(sequential(), 2) == [8 * n for n in (*[FEATURES] * 4, 2000)]


def test_bad_arguments_of_the_tools_are_refused(profiles, clean):
    profile, cluster = profiles[sequential], types_utils.cluster_of(2)
    with pytest.raises(ValueError, match="schedule must be one of"):
        partition.get_auto_pipeline_partition_by_cycle_and_transfer(profile, cluster, {"schedule": "eager"})
    with pytest.raises(ValueError, match="partition must have the stages of all 6 layers"):
        partition_evaluate.estimate_pipelined_model_profile(profile, cluster, [0, 1])
    estimated = partition_evaluate.estimate_pipelined_model_profile(profile, cluster, [0, 0, 0, 0, 1, 1])
    with pytest.raises(ValueError, match="same number of stages"):
        types_utils.compare_pipelined_model_profile(estimated, estimated[:1])
    with ipu.ipu_strategy.IPUStrategy().scope():
        with pytest.raises(ValueError, match="a stage for each of 6 layers"):
            partition.assign(sequential(), [0, 1])
        with pytest.raises(RuntimeError, match="have no shapes yet"):
            partition.create_model_profile(lambda: keras.Sequential([layers.Dense(2)]), 2, {})
