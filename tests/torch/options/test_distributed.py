"""`popdist.poptorch.Options`: what the launcher decides is not the program's to change."""

import pytest

import popdist.poptorch
import poptorch


def test_without_a_launcher_there_is_one_process_with_one_replica():
    options = popdist.poptorch.Options()
    assert isinstance(options, poptorch.Options)
    assert (options.Distributed.processId, options.Distributed.numProcesses, options.replication_factor) == (0, 1, 1)
    assert options.deviceIterations(3) is options


def test_the_launcher_says_process_and_replicas(monkeypatch):
    for name, value in {"NUM_TOTAL_REPLICAS": 8, "NUM_LOCAL_REPLICAS": 2, "REPLICA_INDEX_OFFSET": 6}.items():
        monkeypatch.setenv(f"POPDIST_{name}", str(value))
    monkeypatch.setenv("POPDIST_NUM_IPUS_PER_REPLICA", "4")
    options = popdist.poptorch.Options(4).clone()
    assert (options.Distributed.processId, options.Distributed.numProcesses, options.replication_factor) == (3, 4, 2)
    options.outputMode(poptorch.OutputMode.All)
    assert options.toDict()["num_distributed_processes"] == 4
    with pytest.raises(RuntimeError, match="Replicas have 4 IPUs"):
        popdist.poptorch.Options(ipus_per_replica=2)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("useIpuId", (0,)),
        ("replicationFactor", (2,)),
        ("Distributed.disable", ()),
        ("Distributed.setEnvVarNames", ("a", "b")),
        ("Distributed.configureProcessId", (0, 1)),
    ],
)
def test_what_the_launcher_decides_cannot_be_set(name, arguments):
    owner = popdist.poptorch.Options()
    for part in name.split(".")[:-1]:
        owner = getattr(owner, part)
    with pytest.raises(RuntimeError) as refused:
        getattr(owner, name.split(".")[-1])(*arguments)
    assert str(refused.value) == f"Cannot call `{name}` with popdist.poptorch.Options"
