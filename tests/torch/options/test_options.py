"""Options: values, types, freezing, copies, and what executors make of them."""

import copy
import pickle

import pytest
import torch

import poptorch
from openipu.torch.options import resolve, validate


@pytest.fixture
def options(monkeypatch):
    for name in ("POPTORCH_CACHE_DIR", "POPTORCH_DEFAULT_OPTIONS", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    return poptorch.Options()


def test_methods_chain_and_values_read_as_attributes(options):
    assert options.deviceIterations(4).replicationFactor(2) is options
    assert (options.device_iterations, options.replication_factor, options("device_iterations")) == (4, 2, 4)
    assert options.Training.gradientAccumulation(8) is options.Training
    assert options.Training.gradient_accumulation == 8


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("replication_factor", 1),
        ("input_group_size", 1),
        ("input_cgt", poptorch.CommGroupType.Consecutive),
        ("broadcast_buffers", True),
        ("device_iterations", 1),
        ("log_dir", "."),
        ("max_repeat_logs", 4),
        ("auto_round_num_ipus", False),
        ("anchored_tensors", {}),
        ("output_mode", poptorch.OutputMode.Default),
        ("output_return_period", 1),
        ("connection_type", poptorch.ConnectionType.Always),
        ("sync_pattern", poptorch.SyncPattern.Full),
        ("available_memory_proportion", {}),
    ],
)
def test_defaults(options, name, value):
    assert getattr(options, name) == value


def test_assigning_an_attribute_sets_the_option(options):
    options.replication_factor = 4
    assert "replication_factor=4" in repr(options)
    assert repr(options).startswith("Options(")
    with pytest.raises(AssertionError, match=r"Unexpected type .*float.* for option replication_factor"):
        options.replication_factor = 4.0
    with pytest.raises(AssertionError, match="Invalid option replicas, valid options are"):
        options.replicas = 4
    with pytest.raises(AttributeError, match="Invalid private attribute _replicas"):
        options._replicas = 4
    with pytest.raises(AttributeError, match=r"Invalid attribute replicas\."):
        _ = options.replicas


def test_a_bool_passes_for_an_integer_and_a_float_does_not(options):
    options.deviceIterations(True)
    with pytest.raises(AssertionError, match="Unexpected type"):
        options.deviceIterations(2.0)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("random_seed", lambda o: o.randomSeed(3)),
        ("use_model", lambda o: o.useIpuModel(True)),
        ("ipu_id", lambda o: o.useIpuId(1)),
        ("ipu_version", lambda o: o.useOfflineIpuTarget()),
        ("model_name", lambda o: o.modelName("m")),
    ],
)
def test_options_without_a_default_exist_once_set(options, name, call):
    assert not options.exists(name)
    call(options)
    assert options.exists(name)
    options.deleteIfExists(name)
    assert not options.exists(name)


def test_a_seed_seeds_torch_at_once(options):
    options.randomSeed(11)
    first = torch.rand(3)
    torch.manual_seed(11)
    assert torch.equal(first, torch.rand(3))


def test_frozen_options_refuse_every_setter_and_copies_do_not(options):
    options._freeze()
    setters = [
        lambda o: o.deviceIterations(2),
        lambda o: o.Training.gradientAccumulation(2),
        lambda o: o.Precision.enableStochasticRounding(True),
        lambda o: o.TensorLocations.numIOTiles(32),
        lambda o: o.Distributed.disable(),
        lambda o: o._Popart.set("outlineThreshold", 1.0),
        lambda o: o.setExecutionStrategy(poptorch.ShardedExecution()),
        lambda o: o.showCompilationProgressBar(False),
        lambda o: setattr(o, "replication_factor", 2),
        lambda o: o.randomSeed(1),
    ]
    for setter in setters:
        with pytest.raises(AttributeError, match="Can't modify frozen Options"):
            setter(options)
        setter(options.clone())
        setter(copy.deepcopy(options))
    options.anchorTensor("w", "fc.weight")
    assert options.anchored_tensors["w"].name == "fc.weight"


def test_a_copy_shares_nothing_and_keeps_its_groups_together(options):
    other = options.clone()
    other.Precision.setPartialsType(torch.half)
    assert other._Popart.options["partialsTypeMatMuls"] == "half"
    assert "partialsTypeMatMuls" not in options._Popart.options


def test_options_survive_pickling(options):
    options.deviceIterations(3).anchorTensor("w", "fc.weight")
    assert repr(pickle.loads(pickle.dumps(options))) == repr(options)


def test_a_derived_class_may_take_the_place_of_a_group(options):
    class Derived(type(options.Distributed)):
        def disable(self):
            raise RuntimeError("blocked")

    options.Distributed.__class__ = Derived
    with pytest.raises(RuntimeError, match="blocked"):
        options.Distributed.disable()
    assert options.clone().Distributed.numProcesses == 1


def test_input_grouping_follows_the_replicas(options):
    options.replicationFactor(4)
    group = options.inputReplicaGrouping
    assert group(2, poptorch.CommGroupType.Orthogonal).input_group_size == 2
    assert group(3, poptorch.CommGroupType.NoGrouping).input_group_size == 1
    with pytest.raises(ValueError, match="input_group_type cannot be All"):
        group(2, poptorch.CommGroupType.All)
    with pytest.raises(ValueError, match="input_group_size cannot be larger than replication_factor"):
        group(8, poptorch.CommGroupType.Consecutive)
    with pytest.raises(ValueError, match="input_group_size must be a factor of replication_factor"):
        group(3, poptorch.CommGroupType.Consecutive)


def test_output_modes(options):
    assert options.defaultOutputMode()
    with pytest.raises(AssertionError, match="EveryN anchor must have output_return_period set"):
        options.outputMode(poptorch.OutputMode.EveryN)
    with pytest.raises(AssertionError):
        options.outputMode(1)
    options.outputMode(poptorch.OutputMode.EveryN, 3)
    assert (options.output_mode, options.output_return_period) == (poptorch.OutputMode.EveryN, 3)
    options.outputMode(poptorch.OutputMode.All, 3)
    assert (options.output_mode, options.output_return_period) == (poptorch.OutputMode.All, 1)


def test_memory_proportions_are_given_by_ipu(options):
    options.setAvailableMemoryProportion({"IPU0": 0.5, "IPU3": 0.2})
    assert options.available_memory_proportion == {0: 0.5, 3: 0.2}
    with pytest.raises(AssertionError, match="Invalid key: 0"):
        options.setAvailableMemoryProportion({"0": 0.5})


def test_precision_and_jit_refusals(options):
    with pytest.raises(AssertionError, match="enableFloatingPointExceptions needs to be set to a bool"):
        options.Precision.enableFloatingPointExceptions(1)
    with pytest.raises(ValueError, match=r"eithertorch\.float"):
        options.Precision.setPartialsType(torch.int32)
    with pytest.raises(ValueError, match="runningStatisticsAlwaysFloat needs to be set to a bool"):
        options.Precision.runningStatisticsAlwaysFloat(1)
    with pytest.warns(FutureWarning), pytest.raises(ValueError, match="no longer supported"):
        options.Jit.traceModel(True)
    with pytest.raises(ValueError, match="accumulationAndReplicationReductionType must be set to"):
        options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.NoReduction)


def test_tensor_locations(options):
    settings = poptorch.TensorLocationSettings().useOnChipStorage(False).minElementsForOffChip(4)
    options.TensorLocations.setWeightLocation(settings)
    assert options.TensorLocations.location_weight == {"onChip": 0, "minElementsForOffChip": 4}
    settings.useOnChipStorage(None)
    assert not settings.exists("onChip")
    for wrong in (31, 33, 194, 64.0):
        with pytest.raises(AssertionError, match="numIOTiles must be an even number between 32 and 192"):
            options.TensorLocations.numIOTiles(wrong)
    assert options.TensorLocations.numIOTiles(64)("numIOTiles") == 64
    with pytest.raises(AssertionError):
        options.TensorLocations.setWeightLocation({"onChip": 1})


def test_processes_come_from_the_launcher(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "2")
    distributed = poptorch.Options().Distributed
    assert (distributed.processId, distributed.numProcesses) == (2, 4)
    distributed.disable()
    assert (distributed.processId, distributed.numProcesses) == (0, 1)
    monkeypatch.setenv("MY_RANK", "two")
    with pytest.raises(ValueError, match="MY_RANK must be an integer"):
        distributed.setEnvVarNames("OMPI_COMM_WORLD_SIZE", "MY_RANK")


def test_backend_options_are_checked_when_a_model_is_compiled(options):
    assert options._Popart.options == {"instrumentWithHardwareCycleCounter": False, "rearrangeAnchorsOnHost": False}
    options._Popart.set("autoRecomputation", 3).setPatterns({"A": False}, level=1)
    options.enableProfiling("here").enableSyntheticData(1).logCycleCount(True).updatableNamedBuffers(["b"])
    options.Training.setConvolutionDithering(True).setAutomaticLossScaling(True)
    validate(options)
    for key, value, message in [
        ("notAnOption", True, "Unknown bool option notAnOption"),
        ("notAnOption", 1, "Unknown uint64 option notAnOption"),
        ("notAnOption", 0.5, "Unknown floating point option notAnOption"),
        ("notAnOption", "x", "Unknown string option notAnOption"),
        ("notAnOption", ["x"], "Unknown set / vector option notAnOption"),
        ("notAnOption", {"x": 1}, "Unknown map option notAnOption"),
        ("autoRecomputation", object(), "Unknown value type .* for option autoRecomputation"),
    ]:
        other = options.clone()
        other._Popart.set(key, value)
        with pytest.raises(poptorch.Error, match=message):
            validate(other)


def test_targets_that_exclude_each_other(options):
    options.useOfflineIpuTarget(21)
    assert options.connection_type == poptorch.ConnectionType.Never
    validate(options)
    with pytest.raises(poptorch.Error, match="not supported for the IPU model"):
        validate(options.clone().useIpuModel(True))
    with pytest.raises(poptorch.Error, match="targeting a specific id"):
        validate(options.clone().useIpuId(0))


def test_executors_get_a_copy_with_the_modes_decided(options):
    options.anchorTensor("w", "fc.weight")
    options.anchorTensor("g", "Gradient___fc.weight", poptorch.OutputMode.Sum, 5)
    training, inference = resolve(options, True), resolve(options, False)
    assert training.output_mode == poptorch.OutputMode.Final
    assert inference.output_mode == poptorch.OutputMode.All
    assert options.defaultOutputMode()
    assert training.anchored_tensors["w"].output_mode is poptorch.OutputMode.Final
    assert training.anchored_tensors["g"].output_mode is poptorch.OutputMode.Sum
    assert training.anchored_tensors["g"].output_return_period == 1
    for frozen in (options, training):
        with pytest.raises(AttributeError, match="frozen"):
            frozen.deviceIterations(2)


def test_executors_refuse_other_objects_and_accumulation_in_inference(options):
    with pytest.raises(poptorch.Error, match=r"'options' is of type <class 'dict'> \(Expected poptorch.Options\)"):
        resolve({}, True)
    options.Training.gradientAccumulation(2)
    with pytest.raises(poptorch.Error, match="for pipelined execution instead"):
        resolve(options, False)
    options.setExecutionStrategy(poptorch.ShardedExecution())
    with pytest.raises(poptorch.Error, match=r"poptorch.inferenceModel\(\)\.$"):
        resolve(options, False)


def test_one_dict_of_everything_needs_an_output_mode(options):
    with pytest.raises(AssertionError, match="An output mode must be picked before serialisation"):
        options.toDict()
    merged = options.outputMode(poptorch.OutputMode.Sum).toDict()
    assert merged["output_mode"] == poptorch.OutputMode.Sum
    assert merged["gradient_accumulation"] == merged["num_distributed_processes"] == 1
    assert "execution_mode" in merged and "rearrangeAnchorsOnHost" in merged


def test_profiling_warns_of_options_given_outside(options, monkeypatch, capsys):
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"autoReport.all": "true"}')
    options.enableProfiling()
    assert "autoReport.all" in capsys.readouterr().err
    assert options._Popart.options["engineOptions"]["autoReport.directory"] == "."
