"""Which instance has which replicas on which host."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openipu.launch.errors import LaunchError
from openipu.launch.hosts import LOCALHOST, Host
from openipu.launch.topology import arrange


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_replicas_are_divided_evenly_in_order(hosts, per_host, local, ipus):
    names = [Host(f"h{i}") for i in range(hosts)]
    instances = hosts * per_host
    made = arrange(names, instances, instances * local, ipus)
    assert [i.index for i in made.instances] == list(range(instances))
    assert [i.offset for i in made.instances] == [k * local for k in range(instances)]
    assert [i.host.name for i in made.instances] == [f"h{k // per_host}" for k in range(instances)]
    assert [i.local_index for i in made.instances] == [k % per_host for k in range(instances)]
    # Every line of the picture is as wide as the others.
    assert len({len(line.rstrip("|").lstrip("| ")) > 0 for line in made.picture().splitlines()}) == 1


def test_hosts_may_ask_for_their_number_of_instances():
    made = arrange([Host("a"), Host("b", 2)], None, 6, 1)
    assert [i.host.name for i in made.instances] == ["a", "b", "b"] and made.local_replicas == 2
    with pytest.raises(LaunchError, match=r"a: 1, b: 2.*--num-instances is 4"):
        arrange([Host("a"), Host("b", 2)], 4, 4, 1)


@pytest.mark.parametrize(
    ("hosts", "instances", "replicas", "said"),
    [
        (1, 3, 8, "8 replicas, 3 instances. Use 6 or 9"),
        (1, 4, 2, "2 replicas, 4 instances. Use 4"),
        (2, 3, 6, "3 instances, 2 hosts. Use 2 or 4"),
    ],
)
def test_numbers_that_do_not_divide_are_refused_with_ones_that_do(hosts, instances, replicas, said):
    with pytest.raises(LaunchError, match=said):
        arrange([Host(f"h{i}") for i in range(hosts)], instances, replicas, 1)


def test_the_picture_shows_hosts_instances_and_replicas():
    assert arrange([LOCALHOST], 2, 4, 1).picture().splitlines() == [
        " ===========================",
        "|      poprun topology      |",
        "|===========================|",
        "| hosts     |   localhost   |",
        "|-----------|---------------|",
        "| ILDs      |       0       |",
        "|-----------|---------------|",
        "| instances |   0   |   1   |",
        "|-----------|-------|-------|",
        "| replicas  | 0 | 1 | 2 | 3 |",
        " ---------------------------",
    ]
