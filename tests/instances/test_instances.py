"""Instances of programs of the core, and what popdist says of a process that was started alone."""

import os
import pathlib
import subprocess
import sys
import time

import pytest

import popdist
from openipu.errors import InstanceError
from openipu.instances import Membership, membership

TOP = pathlib.Path(__file__).parents[2]
PROGRAM = str(TOP / "tests" / "instances" / "core_program.py")


def run(command, **variables):
    environment = {**os.environ, "PYTHONPATH": f"{TOP / 'src'}:{TOP}", **variables}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=TOP
    )


def test_lanes_devices_and_processes_train_together_as_numpy_does():
    words = ("--num-instances=2", "--num-replicas=8", sys.executable, PROGRAM)
    # Four replicas in each process, on two devices of two lanes.
    process = run([sys.executable, "-m", "openipu.cli.poprun", *words],
                  XLA_FLAGS="--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0")  # fmt: skip
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert sorted(out.splitlines()) == [f"[1,{i}]<stdout>:trained on 2 devices of each of 2 instances" for i in (0, 1)]


FAILS = """
import sys, time
import numpy as np
import popdist
from openipu import instances
popdist.init()
instances.gather(np.zeros(1))
if popdist.getInstanceIndex() == 1:
    if sys.argv[1] == "raises":
        raise ValueError("the reason")
    sys.exit(3)
instances.gather(np.zeros(1))
"""


@pytest.mark.parametrize(("how", "code"), [("raises", 1), ("exits", 3)])
def test_an_instance_that_fails_does_not_wait_for_those_that_wait_for_it(how, code):
    begun = time.monotonic()
    words = ("--num-instances=2", "--num-replicas=2", sys.executable, "-c", FAILS, how)
    process = run([sys.executable, "-m", "openipu.cli.poprun", *words])
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - begun < 40  # It takes a few seconds, unless the machine is busy.
    assert process.returncode == code and "Instance 1 (process" in errors
    assert how == "exits" or "    ValueError: the reason" in errors


MEETS = """
import numpy as np
import popdist
from openipu import instances
popdist.init()
index = popdist.getInstanceIndex()
print(index, "of", f"{popdist.getNumInstances()}:", instances.gather(np.array(10 * index)).tolist())
"""


@pytest.mark.parametrize("launcher", ["slurm", "mpi"])
def test_processes_that_srun_or_mpirun_starts_find_each_other_by_its_variables(launcher, free_port):
    def variables(index):
        if launcher == "mpi":
            return {
                "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": str(index),
                "OMPI_COMM_WORLD_LOCAL_RANK": str(index), "OPENIPU_COORDINATOR": f"127.0.0.1:{free_port}",
            }  # fmt: skip
        return {
            "SLURM_JOB_ID": str(free_port), "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2",
            "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": str(index), "SLURM_LOCALID": str(index),
        }  # fmt: skip

    processes = [run([sys.executable, "-c", MEETS], **variables(index)) for index in range(2)]
    for index, process in enumerate(processes):
        out, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert out == f"{index} of 2: [0, 10]\n"


@pytest.fixture
def free_port():
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def test_a_process_that_was_started_alone_is_the_only_instance():
    popdist.init()
    assert not popdist.isPopdistEnvSet() and not popdist.isBackendInitialized()
    assert (popdist.getNumInstances(), popdist.getInstanceIndex(), popdist.getLocalInstanceIndex()) == (1, 0, 0)
    assert (popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas(), popdist.getReplicaIndexOffset()) == (1, 1, 0)
    assert popdist.getNumIpusPerReplica() == 1 and popdist.checkNumIpusPerReplica(1)
    assert not popdist.checkNumIpusPerReplica(2)
    assert popdist.execute_on_instances({0}, lambda a, b: a + b, 1, b=2) == 3
    with pytest.raises(InstanceError, match="from 0 to 0"):
        popdist.execute_on_instances({1}, print)
    popdist.synchronize()


def test_the_place_of_an_instance_follows_from_its_replicas(monkeypatch):
    for name, value in {"TOTAL_REPLICAS": 12, "LOCAL_REPLICAS": 3, "IPUS_PER_REPLICA": 2}.items():
        monkeypatch.setenv(f"POPDIST_NUM_{name}", str(value))
    monkeypatch.setenv("POPDIST_REPLICA_INDEX_OFFSET", "6")
    monkeypatch.setenv("POPDIST_LOCAL_INSTANCE_INDEX", "1")
    assert membership() == Membership(2, 4, 1, 1, "poprun")
    assert popdist.isPopdistEnvSet() and popdist.getInstanceIndex() == 2 and popdist.getNumInstances() == 4
    assert popdist.getReplicaIndexOffset() == 6 and popdist.checkNumIpusPerReplica(2)
    monkeypatch.setenv("POPDIST_REPLICA_INDEX_OFFSET", "5")
    with pytest.raises(ValueError, match="must divide"):
        membership()


@pytest.mark.parametrize(
    ("launcher", "variables"),
    [
        ("Open MPI", ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
                      "OMPI_COMM_WORLD_LOCAL_RANK")),
        ("MPICH", ("PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID")),
        ("SLURM", ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_LOCALID")),
    ],
)  # fmt: skip
def test_other_launchers_say_by_their_variables_which_process_is_which_instance(monkeypatch, launcher, variables):
    for name, value in zip(variables, ("6", "4", "2(x3)" if launcher == "SLURM" else "2", "0"), strict=True):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("POPDIST_NUM_LOCAL_REPLICAS", "3")
    assert membership() == Membership(4, 6, 0, 2, launcher)
    assert popdist.isPopdistEnvSet() and popdist.getNumTotalReplicas() == 18 and popdist.getReplicaIndexOffset() == 12


def test_an_instance_that_nobody_told_where_to_meet_is_told_what_to_do():
    from openipu.instances import join

    with pytest.raises(InstanceError, match=r"poprun, mpirun or srun|popdist.init\(\) at the start"):
        join(0, 2)
