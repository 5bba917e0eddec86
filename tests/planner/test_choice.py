"""Plans are predicted as what they would be, the stages are balanced, and the best that fits is recommended."""

import attrs
import pytest

from openipu import model
from openipu.hardware import BOW
from openipu.model import Options
from openipu.planner.candidates import Candidate, candidates
from openipu.planner.choice import Choice, choose, recommended
from openipu.planner.layers import layers_of
from openipu.planner.staging import staged
from openipu.planner.words import options_to_type
from openipu.program import Plan, check_count
from tests.planner.programs import LAYERS, cnn


@pytest.fixture(scope="module")
def traced():
    return model.trace(cnn(), Plan())


@pytest.fixture(scope="module")
def answer():
    return choose(cnn(), Plan(device_iterations=32), BOW, Options(), [1, 2, 4], [1.0, 2.0])


def test_layers_are_in_the_order_of_the_forward_pass(traced):
    layers = layers_of(traced, model.estimate(traced.program, Plan(), BOW, traced=traced))
    assert layers.names == LAYERS
    assert all(seconds > 0 for seconds in layers.seconds)
    # After the first convolution, 8 x 8 x 8 x 16 floats go on, and as many gradients come back.
    assert layers.edges[0] == pytest.approx(2 * 8 * 8 * 8 * 16 * 4 / BOW.pair_bandwidth, rel=0.02)


def test_a_cut_program_has_every_layer_on_its_stage_in_both_passes(traced):
    stage_of = {name: int(i >= 3) for i, name in enumerate(LAYERS)}
    plan = Candidate(2, 2, 1, 8, 4).plan(Plan())
    cut = staged(traced, stage_of, 2)
    estimate = model.estimate(cut.program, plan, BOW, traced=cut)
    found = {(o.layer, o.stage) for o in estimate.operations if o.layer}
    assert found == set(stage_of.items())
    assert {o.phase for o in estimate.operations if o.stage == 0} == set(model.Pass)
    whole = model.estimate(traced.program, Plan(), BOW, traced=traced)
    assert sum(stage.flops for stage in estimate.stages) == pytest.approx(whole.flops_per_step)


def test_candidates_are_plans_that_the_schedule_takes():
    found = list(candidates([1, 6, 16], [8, 16], Plan(device_iterations=3, gradient_accumulation=3), 6))
    assert {c.stages for c in found} == {1, 2, 3, 4, 6}
    for candidate in found:
        assert candidate.stages * candidate.replicas == candidate.ipus
        plan = candidate.plan(Plan(device_iterations=3, gradient_accumulation=3))
        assert plan.gradient_accumulation >= 3
        if plan.pipeline is not None:
            check_count(plan.pipeline.schedule, candidate.stages, plan.gradient_accumulation, True)


def test_every_plan_is_predicted_as_the_model_does(answer, traced):
    single = next(c for c in answer.choices if c.candidate.ipus == 1 and c.candidate.micro_batch == 8)
    expected = model.estimate(traced.program, single.candidate.plan(Plan(device_iterations=32)), BOW)
    assert single.throughput == pytest.approx(expected.throughput, rel=1e-6)
    assert single.worst_tile == expected.worst.worst_tile
    assert answer.written.candidate == Candidate(1, 1, 1, 8, 1)
    assert {c.candidate.ipus for c in answer.choices} == {1, 2, 4}
    assert all(0 < c.balance <= 1 and 0 <= c.bubble < 1 for c in answer.choices)


def test_the_fastest_plan_that_fits_is_recommended(answer):
    best = answer.choices[answer.recommended]
    assert best.fits and best.throughput >= 0.97 * max(c.throughput for c in answer.choices)
    full = [attrs.evolve(c, fits=False) for c in answer.choices]
    assert recommended(full) is None
    full[1] = answer.choices[1]
    assert recommended(full) == 1


def test_of_plans_about_as_fast_the_simpler_one_is_recommended(answer):
    def plan(throughput, **changes):
        one: Choice = answer.choices[0]
        return attrs.evolve(one, throughput=throughput, fits=True, candidate=attrs.evolve(one.candidate, **changes))

    assert recommended([plan(101.0, ipus=4, stages=4), plan(100.0, ipus=4, stages=1)]) == 1
    assert recommended([plan(110.0, ipus=4, stages=4), plan(100.0, ipus=4, stages=1)]) == 0


def test_a_plan_is_said_in_the_words_of_the_front_end(answer):
    cut = next(c for c in answer.choices if c.candidate.stages == 2)
    plan = cut.candidate.plan(Plan())
    keras = "\n".join(options_to_type("tensorflow", cut, plan))
    assert "config.auto_select_ipus = 2" in keras and "auto_pipeline_stage_assignment(2" in keras
    assert f"gradient_accumulation_steps_per_replica={cut.candidate.accumulation}" in keras
    torch = "\n".join(options_to_type("poptorch", cut, plan))
    assert "options.replicationFactor(1)" in torch
    assert f'BeginBlock(model.get_submodule("{cut.starts[1].replace("/", ".")}"), ipu_id=1)' in torch
