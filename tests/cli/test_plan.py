"""`openipu plan` tabulates plans of the first program that trains, recommends one, and says why when there is none."""

import json

import pytest

from openipu.cli.plan import plan

# A training program made by hand, handed over as front ends do.
TRAINS = """
from openipu.program import Plan
from openipu.report.watching import watch_for
from openipu.runtime import Session, Setting
from tests.planner.programs import cnn
import attrs
watch = watch_for("poptorch", {}, lambda program: "training")
watch(attrs.evolve(cnn(), update=None), Plan(), Setting())
print("after inference")
watch(cnn(), Plan(device_iterations=8), Setting())
print("trained")
"""


def test_plans_are_tabulated_and_one_is_recommended(call, script, capfd):
    result = call(plan, "--ipus", "1,2", script(TRAINS))
    assert result.exit_code == 0, result.output
    assert capfd.readouterr().out == "after inference\n", "inference runs, training does not"
    lines = result.output.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("best" in line.split() for line in lines) >= 1 and any(
        line.lstrip().startswith("as is") for line in lines
    )
    assert "To run the best plan, type:" in result.output and "options.replicationFactor(" in result.output


def test_the_answer_as_json_is_alone_on_the_output(call, script):
    result = call(plan, "--ipus", "4", "--micro-batch", "1", "--json", script(TRAINS))
    answer = json.loads(result.stdout)
    assert {(c["candidate"]["stages"], c["candidate"]["replicas"]) for c in answer["choices"]} == {
        (1, 4),
        (2, 2),
        (4, 1),
    }
    assert answer["choices"][answer["recommended"]]["fits"]


def test_a_script_that_trains_nothing_is_one_error(call, script):
    result = call(plan, script("print('idle')"), columns=200)
    assert result.exit_code == 1 and "trained nothing on IPUs: there is nothing to plan" in result.output
    result = call(plan, script("raise SystemExit(3)"), columns=200)
    assert result.exit_code == 1 and "exit code 3 before it trained anything" in result.output


@pytest.mark.parametrize("ipus", ["0", "two", "1,,2", "-4"])
def test_numbers_of_ipus_are_checked(call, ipus):
    result = call(plan, "--ipus", ipus, "train.py", columns=200)
    assert result.exit_code == 2 and "positive numbers separated by commas" in result.output
