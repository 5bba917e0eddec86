"""Environment variables: values that are understood, and values that are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openipu import environment
from openipu.environment import PoplarFlags


def flags(monkeypatch, text):
    monkeypatch.setenv("TF_POPLAR_FLAGS", text)
    return environment.poplar_flags()


def test_no_flags_are_the_defaults(monkeypatch):
    monkeypatch.delenv("TF_POPLAR_FLAGS", raising=False)
    assert environment.poplar_flags() == PoplarFlags()
    assert not environment.running_on_ipu_model()


def test_flags_with_and_without_values(monkeypatch):
    given = flags(
        monkeypatch, "--use_ipu_model --executable_cache_path=/tmp/x  --max_infeed_threads=-1 --allow_nans=false"
    )
    assert given == PoplarFlags(use_ipu_model=True, executable_cache_path="/tmp/x")
    assert environment.running_on_ipu_model()


def test_the_last_of_two_equal_flags_counts(monkeypatch):
    assert not flags(monkeypatch, "--allow_nans --allow_nans=false").allow_nans


@pytest.mark.parametrize("text", ["--no_such_flag", "use_ipu_model", "-allow_nans"])
def test_unknown_flags_are_refused_with_the_valid_ones(monkeypatch, text):
    with pytest.raises(ValueError, match=r"unknown flag.*--use_synthetic_data, .*Received"):
        flags(monkeypatch, text)


@pytest.mark.parametrize(
    "text, message",
    [
        ("--use_ipu_model=maybe", "true or false.*use_ipu_model=maybe"),
        ("--max_infeed_threads=many", "an integer"),
        ("--max_infeed_threads", "an integer"),
        ("--executable_cache_path /tmp/x", "a value after '='"),
        ("--synthetic_data_categories=infeed,weights", "infeed, outfeed, seed.*Received: weights"),
        ("--synthetic_data_initializer=random", "only has a meaning with"),
        ("--use_synthetic_data --synthetic_data_initializer=gamma", "or a number.*'gamma'"),
        ("--show_progress_bar=yes", "true, false or auto"),
        ("--on_demand_device_poll_time=5", "at least 100"),
    ],
)
def test_bad_values_are_refused(monkeypatch, text, message):
    with pytest.raises(ValueError, match=message):
        flags(monkeypatch, text)


def test_synthetic_categories(monkeypatch):
    chosen = flags(monkeypatch, "--synthetic_data_categories=infeed,parameters --synthetic_data_initializer=1.5")
    assert chosen.synthetic_categories == {"infeed", "parameters"}
    everything = flags(monkeypatch, "--use_synthetic_data --synthetic_data_initializer=uniform")
    assert everything.synthetic_categories == {"infeed", "outfeed", "seed", "hostembedding", "parameters"}


@given(st.dictionaries(st.sampled_from(PoplarFlags._fields), st.booleans()))
def test_every_boolean_flag_is_read_back(chosen):
    chosen = {name: value for name, value in chosen.items() if type(getattr(PoplarFlags(), name)) is bool}
    text = " ".join(f"--{name}={str(value).lower()}" for name, value in chosen.items())
    assert environment._parse_poplar_flags(text) == PoplarFlags(**chosen)
