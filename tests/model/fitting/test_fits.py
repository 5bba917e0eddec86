"""A program that would not fit is warned of or refused, whether it is compiled or comes from the cache."""

import logging

import attrs
import pytest

from openipu.compiler import Cache, compile_program
from openipu.errors import OutOfMemoryError
from openipu.hardware import MK2
from openipu.model import Options, estimate, trace
from openipu.model.fitting.bound import bound
from openipu.model.fitting.fits import MemoryCheck
from openipu.program import Plan
from tests.model.toy import network

OPTIONS = Options()
TINY = attrs.evolve(MK2, bytes_per_tile=4096)


class Watched:
    """A small program that can be kept, and that counts how often it is traced."""

    def __init__(self):
        self.traces = 0
        made = network(width=16, layers=2, batch=4)

        def step(*arguments):
            self.traces += 1
            return made.step(*arguments)

        self.program = attrs.evolve(made, step=step, identity="network")


def compiled(program, folder, target=TINY, wish="warn", options=OPTIONS):
    check = MemoryCheck(program, Plan(), target, options, wish)
    return compile_program(program, Plan(), cache=Cache(folder), inspection=check)


def said(caplog):
    found = [record.getMessage() for record in caplog.records if record.name == "openipu.memory"]
    caplog.clear()
    return found


@pytest.fixture
def kept(tmp_path, caplog):
    """The folder of a cache with the program, and what was said when it was compiled."""
    caplog.set_level(logging.WARNING, "openipu.memory")
    compiled(Watched().program, tmp_path)
    return tmp_path, said(caplog)


def test_a_program_from_the_cache_is_warned_of_without_being_traced(kept, caplog):
    folder, before = kept
    again = Watched()
    assert compiled(again.program, folder).file is not None
    assert again.traces == 0
    assert said(caplog) == before
    assert len(before) == 1 and "network/train would not fit on Mk2 IPUs" in before[0] and "dense" in before[0]
    assert "It runs here all the same" in before[0]


def test_a_doubt_takes_no_second_look_at_the_program(tmp_path):
    plain, doubtful = Watched(), Watched()
    compiled(plain.program, tmp_path / "plain", wish="off")
    compiled(doubtful.program, tmp_path / "doubtful")
    assert doubtful.traces == plain.traces


def test_a_program_from_the_cache_is_refused_if_asked_for(kept):
    folder, _ = kept
    with pytest.raises(OutOfMemoryError, match="would not fit") as refusal:
        compiled(Watched().program, folder, wish="error")
    assert "OPENIPU_MEMORY=error" in str(refusal.value) and "It runs here" not in str(refusal.value)


def test_a_program_from_the_cache_is_judged_anew_for_other_ipus_and_options(kept, caplog):
    folder, before = kept
    again = Watched()
    compiled(again.program, folder, target=MK2)
    assert again.traces == 0 and not said(caplog), "so small a program fits without a look at it"
    compiled(again.program, folder, target=attrs.evolve(MK2, bytes_per_tile=2048))
    (other,) = said(caplog)
    assert again.traces == 1 and "would need 5 KiB of 2" in other and "would need 5 KiB of 4" in before[0]
    compiled(again.program, folder, options=Options(offload_optimizer_state=True))
    assert again.traces == 2 and len(said(caplog)) == 1
    compiled(again.program, folder, wish="off")
    assert not said(caplog)


def test_a_program_that_was_compiled_unasked_is_judged_when_it_is_loaded(tmp_path, caplog):
    caplog.set_level(logging.WARNING, "openipu.memory")
    compiled(Watched().program, tmp_path, wish="off")
    assert not said(caplog)
    compiled(Watched().program, tmp_path)
    assert len(said(caplog)) == 1


def test_a_refused_program_is_neither_compiled_nor_kept(tmp_path):
    with pytest.raises(OutOfMemoryError):
        compiled(Watched().program, tmp_path, wish="error")
    assert not list(tmp_path.iterdir())


def test_what_the_model_cannot_judge_runs_all_the_same(tmp_path, caplog, monkeypatch):
    caplog.set_level(logging.WARNING, "openipu.memory")

    def broken(*_):
        raise ValueError("a kernel of no known kind")

    monkeypatch.setattr("openipu.model.fitting.fits.estimate", broken)
    assert compiled(Watched().program, tmp_path).file is not None
    (text,) = said(caplog)
    assert "cannot be said whether network/train would fit" in text and "a kernel of no known kind" in text


@pytest.mark.parametrize("layers", [1, 12])
@pytest.mark.parametrize(("width", "batch"), [(16, 4), (256, 4096), (1024, 32768)])
@pytest.mark.parametrize("share", [0.05, 0.6, 1.0])
def test_the_quick_bound_never_calls_small_what_is_large(layers, width, batch, share):
    program = network(width=width, layers=layers, batch=batch)
    traced = trace(program, Plan())
    options = Options(matmul_proportion=share)
    quick = bound(program, traced.step)
    needed = estimate(program, Plan(), MK2, options, traced).worst
    # Whatever the size of a tile: if the bound says that it fits, it does.
    for size in (2**13, 2**16, needed.worst_tile - 1, MK2.bytes_per_tile):
        target = attrs.evolve(MK2, bytes_per_tile=size)
        made = estimate(program, Plan(), target, options, traced)
        assert made.fits or not quick.fits(Plan(), target, options)
