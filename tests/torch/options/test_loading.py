"""Options written as text: JSON, the environment and files, none of which can run code."""

import pytest

import poptorch


def load(tmp_path, text, options=None):
    path = tmp_path / "my.conf"
    path.write_text(text)
    return (options or poptorch.Options()).loadFromFile(str(path))


def test_json_names_methods_and_their_arguments():
    text = """{"deviceIterations": 2, "Precision.enableFloatingPointExceptions": true, "_Popart.set": ["logDir", "x.y"],
               "connectionType": "ConnectionType.OnDemand", "outputMode": ["OutputMode.EveryN", 2]}"""
    options = poptorch.Options()
    assert options.from_json(text) is options
    assert options.device_iterations == 2
    assert options._Popart.options["enableFloatingPointChecks"] is True
    assert options._Popart.options["logDir"] == "x.y"
    assert options.connection_type == poptorch.ConnectionType.OnDemand
    assert options.output_return_period == 2


@pytest.mark.parametrize("key", ["__class__", "_freeze", "_training.gradientAccumulation", "nothing", "clone.__self__"])
def test_json_reaches_public_methods_only(key):
    with pytest.raises(AttributeError, match="Invalid attribute"):
        poptorch.Options().from_json(f'{{"{key}": 1}}')


def test_the_environment_sets_defaults(monkeypatch, tmp_path):
    monkeypatch.setenv("POPTORCH_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("POPTORCH_DEFAULT_OPTIONS", '{"deviceIterations": 7}')
    options = poptorch.Options()
    assert options.device_iterations == 7
    assert options._Popart.options["cachePath"] == str(tmp_path)
    assert options._Popart.options["enableEngineCaching"] is True
    options.enableExecutableCaching(None)
    assert options._Popart.options["enableEngineCaching"] is False


def test_a_file_lists_calls(tmp_path):
    options = load(
        tmp_path,
        """
        # a comment
        deviceIterations(4)   # another
        Training.gradientAccumulation(-(-8))
          replicationFactor(replication_factor=2).outputMode(poptorch.OutputMode.EveryN, 2)
        setAvailableMemoryProportion({"IPU0": 0.5})
        _Popart.set("hardwareInstrumentations", ["a", "b"])
        connectionType(poptorch.enums.ConnectionType.OnDemand)
        TensorLocations.setWeightLocation(poptorch.TensorLocationSettings().useOnChipStorage(False))
        setExecutionStrategy(poptorch.PipelinedExecution(poptorch.Stage("a", "b").ipu(1), "c"))
        """.replace("-(-8)", "8"),
    )
    assert options.device_iterations == 4
    assert options.Training.gradient_accumulation == 8
    assert (options.replication_factor, options.output_return_period) == (2, 2)
    assert options._Popart.options["hardwareInstrumentations"] == ["a", "b"]
    assert options.TensorLocations.location_weight == {"onChip": 0}
    assert options._execution_strategy.placement("b", None).ipu == 1


def test_later_files_override_only_what_they_set(tmp_path):
    options = load(tmp_path, "deviceIterations(4)\nreplicationFactor(2)")
    load(tmp_path, "deviceIterations(5)", options)
    assert (options.device_iterations, options.replication_factor) == (5, 2)


def test_a_syntax_error_names_the_line(tmp_path):
    with pytest.raises(
        poptorch.ConfigFileError, match=r"(?s)^SyntaxError at line 2 of my.conf: .*\n> options.deviceIter\(1$"
    ):
        load(tmp_path, "# not counted\n\nreplicationFactor(2)\ndeviceIter(1\n")


def test_other_errors_pass_unchanged(tmp_path):
    with pytest.raises(AssertionError, match="Unexpected type"):
        load(tmp_path, "deviceIterations(1.0)")
    with pytest.raises(AttributeError, match="Invalid attribute nothing"):
        load(tmp_path, "nothing(1)")
    with pytest.raises(NameError, match="torch"):
        load(tmp_path, "Precision.setPartialsType(torch.half)")
    with pytest.raises(FileNotFoundError):
        poptorch.Options().loadFromFile(str(tmp_path / "missing"))


@pytest.mark.parametrize(
    "line",
    [
        "logDir(open('{}', 'w').name)",
        "logDir(__import__('os').makedirs('{}'))",
        "logDir([c for c in [open('{}', 'w')]][0])",
        "deviceIterations(1), open('{}', 'w')",
        "__init__.__globals__['open']('{}', 'w')",
        "logDir(f\"{{open('{}', 'w')}}\")",
        "logDir(poptorch.logger.name)",
        "logDir((lambda: open('{}', 'w'))())",
        "modelName(poptorch.poptorchAtExit())",
        "toDict.__self__.deviceIterations(1)",
    ],
)
def test_no_line_runs_code(tmp_path, line):
    made = tmp_path / "made"
    with pytest.raises((poptorch.ConfigFileError, AttributeError, NameError)):
        load(tmp_path, line.format(made))
    assert not made.exists()
