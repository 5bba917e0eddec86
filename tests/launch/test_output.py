"""What instances print is shown as they printed it, and what libraries print on the way is not."""

import pytest

from openipu.launch.output import Output

END = " is connected to 3 peer ranks. Expected number of connected peer ranks is : 3\n"


@pytest.mark.parametrize(
    "said",
    [
        f"[Gloo] Rank 0{END}[Gloo] Rank 1{END}",
        # Two threads of one process, as they were seen.
        f"[Gloo] Rank [Gloo] Rank 01{END}{END}",
        "[Gloo] Rank [Gloo] Rank 0 is connected to 11 is connected to  peer ranks. 1Expected number of connected peer "
        "ranks is :  peer ranks. 1Expected number of connected peer ranks is : \n1\n",
    ],
)
@pytest.mark.parametrize("verbose", [False, True])
def test_what_gloo_says_when_it_connects_is_only_shown_to_who_asks(said, verbose, capsys):
    output = Output(verbose=verbose)
    output.add(0, "stdout", b"1\n")
    # Its own lines come after Gloo's, in pieces of any size.
    for begin in range(0, len(said), 7):
        output.add(0, "stdout", said[begin : begin + 7].encode())
    output.add(0, "stdout", b"1\n\nRank 3\n")
    output.finish(0)
    tagged = [f"[1,0]<stdout>:{text}" for text in ("1", *(said.splitlines() if verbose else ()), "1", "", "Rank 3")]
    assert capsys.readouterr().out.splitlines() == tagged
