"""`openipu demo` is the demo of `make demo`."""

import importlib.util

from click.testing import CliRunner

from openipu import demo
from openipu.cli.main import main
from openipu.hardware import BOW
from openipu.model import estimate
from openipu.program import Plan
from tests.model.toy import network


def test_the_command_runs_the_demo(monkeypatch):
    monkeypatch.setattr(demo, "main", lambda: print("the demo"))
    result = CliRunner().invoke(main, ["demo"])
    assert (result.exit_code, result.output) == (0, "the demo\n")


def test_the_last_line_says_what_was_measured_also_when_it_is_slower():
    def runs(model, stock, *others):
        return [demo.Run(model, how, 0.9, us, 1.0) for how, us in ((demo.STOCK, stock), *enumerate(others))]

    said = demo.verdict([*runs("CNN", 900, 1000, 1500), *runs("MLP", 300, 100)], "Some CPU with 2 cores")
    assert said.startswith("Measured here, on Some CPU with 2 cores, once compiled: ")
    assert "CNN 0.6x to 0.9x the speed of stock Keras (slower); MLP 3.0x the speed of stock Keras (faster)." in said
    assert "0.5x to 2.0x the speed of stock Keras (faster or slower)" in demo.verdict(runs("CNN", 10, 5, 20), "")
    assert "1.0x the speed of stock Keras (as fast)" in demo.verdict(runs("CNN", 10, 10), "")


def test_the_end_says_what_a_real_ipu_would_have_needed():
    made = estimate(network(), Plan(), BOW)
    runs = [demo.Run("CNN", demo.STOCK, 0.9, 100, 1.0), demo.Run("CNN", "two replicas", 0.9, 100, 1.0, made)]
    said = demo.prediction(runs)
    assert said.startswith("Predicted for a real Bow IPU, CNN: two replicas ")
    assert f"{made.seconds_per_batch * 1e6:.0f} µs per batch" in said and "of an IPU's SRAM" in said


def test_the_processor_has_a_name():
    assert len(demo.processor()) > len(" with 2 cores")


def test_without_tensorflow_it_says_what_to_install(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tensorflow" else find(name))
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 1 and "pip install 'openipu[tensorflow]'" in result.output
