"""Names of hosts, as users of MPI and SLURM write them."""

import pytest

from openipu.launch.errors import LaunchError
from openipu.launch.hosts import Host, parse, read


def test_lists_ranges_and_counts_name_hosts():
    assert [host.name for host in parse("a, b,node[0-2,4],r[08-10]x")] == [
        "a", "b", "node0", "node1", "node2", "node4", "r08x", "r09x", "r10x",
    ]  # fmt: skip
    assert parse("a,b:2") == [Host("a"), Host("b", 2)]
    assert [host.name for host in parse("10.0.0.1,fe80::1")] == ["10.0.0.1", "fe80::1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [("a,a", "more than once: a"), ("a:0", "b:2"), ("a[3-1]", "[0-2,4]"), ("", "no host"), ("a b!", "not the name")],
)
def test_what_names_no_host_is_refused(text, said):
    with pytest.raises(LaunchError, match=said.replace("[", r"\[")):
        parse(text)


def test_host_files_have_a_host_a_line(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("# all of them\na\nb slots=2  # the large one\n\nnode[0-1]\n")
    assert read(path) == [Host("a"), Host("b", 2), Host("node0"), Host("node1")]
    with pytest.raises(LaunchError, match="cannot be read"):
        read(tmp_path / "none")
