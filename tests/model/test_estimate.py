"""What an estimate says of a program follows from the program, its plan and its options."""

import attrs
import pytest

from openipu.hardware import BOW, MK1, MK2
from openipu.model import Category, OperationKind, Options, Partials, Pass, Recompute, estimate, suggestions, trace
from openipu.model.fitting.complaint import complaint
from openipu.model.slot_layers import layer_of_slot
from openipu.program import Plan, Schedule
from tests.model.toy import network, pipelined


@pytest.fixture(scope="module")
def program():
    return network()


@pytest.fixture(scope="module")
def traced(program):
    return trace(program, Plan())


@pytest.fixture(scope="module")
def plain(program, traced):
    return estimate(program, Plan(), MK2, traced=traced)


def test_products_are_known_by_layer_and_pass(plain):
    products = [o for o in plain.operations if o.kind is OperationKind.MATMUL]
    found = {(o.layer, o.phase) for o in products}
    assert found == {(f"dense{i}", phase) for i in range(4) for phase in (Pass.FORWARD, Pass.BACKWARD)}
    # Every layer has one forward product and the gradient of its kernel; all but the first that of their input.
    assert len(products) == 4 + 4 + 3
    assert all(o.flops == 2 * 32 * 256 * 256 for o in products)
    assert len({o.name for o in plain.operations}) == len(plain.operations)


def test_memory_is_counted_by_what_it_is_for(plain):
    kernel = 256 * 256 * 4
    assert plain.memory[0].categories[Category.WEIGHTS] == 4 * kernel
    assert plain.memory[0].categories[Category.OPTIMIZER_STATE] == 4 * kernel
    assert plain.memory[0].categories[Category.ACCUMULATORS] == 0
    assert plain.memory[0].categories[Category.INPUT_OUTPUT] == 32 * 256 * 4 + 4
    assert plain.fits and plain.worst.total == pytest.approx(plain.worst.tiles.sum(), rel=0.01)


@pytest.mark.parametrize(
    ("slot", "layer"),
    [
        ("conv1/kernel:0", "conv1"),
        ("model.block.0.conv.weight", "block/0/conv"),
        ("conv2/kernel:0", "resnet/conv2_1"),
        ("unused/kernel:0", "unused"),
        ("iteration", ""),
    ],
)
def test_weights_belong_to_the_layer_that_computes_with_them(slot, layer):
    layers = frozenset(("conv1", "block/0/conv", "block/1/conv", "resnet/conv2_1", "resnet/conv12_1", ""))
    assert layer_of_slot(slot, layers) == layer


def test_gradients_that_are_accumulated_have_accumulators(program, traced):
    made = estimate(program, Plan(4, gradient_accumulation=4), MK2, traced=traced)
    assert made.memory[0].categories[Category.ACCUMULATORS] == 4 * 256 * 256 * 4


def test_a_narrower_accumulator_takes_less(program, traced):
    narrow = attrs.evolve(program, accumulators=("float16",) * 4)
    made = estimate(narrow, Plan(4, gradient_accumulation=4), MK2, traced=attrs.evolve(traced, program=narrow))
    assert made.memory[0].categories[Category.ACCUMULATORS] == 4 * 256 * 256 * 2


def test_the_peak_of_the_liveness_curve_is_what_temporaries_take(plain):
    memory = plain.memory[0]
    assert max(point.bytes for point in memory.liveness) == pytest.approx(
        memory.categories[Category.TEMPORARIES], rel=1e-3
    )
    names = {o.name for o in plain.operations}
    assert {point.operation for point in memory.liveness} == names


def test_shares_add_up_to_the_time_of_a_step(plain):
    assert plain.seconds_per_step == pytest.approx(sum(attrs.astuple(plain.shares)))
    compute = plain.shares.compute + plain.shares.exchange
    assert compute == pytest.approx(plain.stages[0].forward + plain.stages[0].backward)
    assert plain.throughput == pytest.approx(32 / plain.seconds_per_step)
    assert 0 < plain.utilisation < 1


def test_steps_of_one_execution_share_its_launch(program, traced, plain):
    many = estimate(program, Plan(100), MK2, traced=traced)
    assert many.shares.launch == pytest.approx(plain.shares.launch / 100)


def test_a_faster_clock_is_that_much_faster(program, traced, plain):
    bow = estimate(program, Plan(), BOW, traced=traced)
    assert plain.shares.compute / bow.shares.compute == pytest.approx(BOW.clock_hz / MK2.clock_hz)
    assert estimate(program, Plan(), MK1, traced=traced).memory[0].limit == 256 * 1024


def test_replicas_exchange_gradients_and_streams_of_one_process_are_shared(program, traced):
    four = estimate(program, Plan(replicas=4), MK2, traced=traced)
    assert four.shares.replica_exchange > 0 and four.ipus == 4
    shared = estimate(program, Plan(replicas=4), MK2, Options(shared_stream=True), traced)
    assert shared.shares.host > four.shares.host
    joined = estimate(program, Plan(replicas=4), MK2, Options(collective_buffer=2**24), traced)
    assert joined.shares.replica_exchange < four.shares.replica_exchange


def test_a_pipeline_has_stages_bubbles_and_copies():
    program = network(stages=2)
    made = estimate(program, pipelined(2), MK2)
    assert [stage.layers for stage in made.stages] == [("dense0", "dense1"), ("dense2", "dense3")]
    assert len(made.memory) == 2 and made.memory[0].categories[Category.WEIGHTS] == 2 * 256 * 256 * 4
    assert made.timeline is not None and made.timeline.count == 8
    assert made.shares.bubble > 0 and made.shares.stage_copies > 0
    slowest = max(stage.forward + stage.backward for stage in made.stages)
    assert made.seconds_per_step >= slowest


def test_a_longer_pipeline_is_extrapolated_from_a_shorter_one():
    program, traced = network(stages=2), None
    times = {}
    for count in (48, 96, 480):
        plan = pipelined(2, count)
        traced = traced or trace(program, plan)
        made = estimate(program, plan, MK2, traced=traced)
        times[count] = made.shares.bubble * count
    assert times[96] == pytest.approx(times[48], rel=1e-6) and times[480] == pytest.approx(times[48], rel=1e-6)


def test_recomputation_keeps_less_and_takes_longer():
    program = network(layers=8, batch=2048, stages=4)
    traced = trace(program, pipelined(4))
    kept, again = (estimate(program, pipelined(4, recompute=again), MK2, traced=traced) for again in (False, True))
    assert again.memory[0].categories[Category.STASH] < kept.memory[0].categories[Category.STASH]
    assert again.stages[0].backward > kept.stages[0].backward
    assert any(operation.recomputed for operation in again.operations)


def test_schedules_stash_as_deep_as_they_run_ahead():
    program = network(layers=4, stages=4)
    traced = trace(program, pipelined(4))
    sizes = [
        estimate(program, pipelined(4, schedule=schedule), MK2, traced=traced).memory[0].categories[Category.STASH]
        for schedule in (Schedule.GROUPED, Schedule.INTERLEAVED, Schedule.SEQUENTIAL)
    ]
    assert sizes[0] == 2 * sizes[1] and sizes[2] == 0


def test_checkpoints_bound_what_is_computed_again_at_once():
    program = network(layers=8, batch=8192, kept=True)
    traced = trace(program, Plan())
    none, kept = (
        estimate(program, Plan(), MK2, Options(recompute=kind), traced)
        for kind in (Recompute.NONE, Recompute.CHECKPOINTS)
    )
    assert kept.memory[0].categories[Category.TEMPORARIES] < none.memory[0].categories[Category.TEMPORARIES]


@pytest.mark.parametrize(
    ("option", "category"),
    [
        ("offload_optimizer_state", Category.OPTIMIZER_STATE),
        ("offload_weights", Category.WEIGHTS),
        ("offload_accumulators", Category.ACCUMULATORS),
    ],
)
def test_what_is_kept_off_the_chip_takes_time_instead_of_memory(program, traced, option, category):
    plan = Plan(4, gradient_accumulation=4)
    here = estimate(program, plan, MK2, traced=traced)
    away = estimate(program, plan, MK2, Options(**{option: True}), traced)
    assert away.memory[0].categories[category] == 0
    assert away.memory[0].streaming == here.memory[0].categories[category]
    assert away.shares.streaming > here.shares.streaming


def test_sharded_state_is_divided_by_the_replicas(program, traced):
    plan = Plan(replicas=4)
    whole, part = (estimate(program, plan, MK2, Options(shard_optimizer_state=s), traced) for s in (False, True))
    state = Category.OPTIMIZER_STATE
    assert part.memory[0].categories[state] == whole.memory[0].categories[state] // 4


def test_half_partials_are_faster_and_little_memory_is_slower():
    import numpy as np

    program = network(width=2048, layers=2, batch=2048, dtype=np.float16)
    traced = trace(program, Plan())
    wide, narrow = (
        estimate(program, Plan(), MK2, Options(partials=p), traced) for p in (Partials.FLOAT, Partials.HALF)
    )
    assert narrow.shares.compute < wide.shares.compute
    little = estimate(program, Plan(), MK2, Options(matmul_proportion=0.05), traced)
    assert little.seconds_per_step > wide.seconds_per_step
    assert little.memory[0].categories[Category.TEMPORARIES] < wide.memory[0].categories[Category.TEMPORARIES]


def test_transfers_that_overlap_are_hidden_by_computation(program, traced, plain):
    hidden = estimate(program, Plan(), MK2, Options(overlap_host=True, io_tiles=32), traced)
    assert hidden.shares.host < plain.shares.host
    assert estimate(program, Plan(), MK2, Options(synthetic_data=True), traced).shares.host == 0


def test_a_program_that_does_not_fit_says_by_how_much_and_what_helps():
    program = network(width=1024, layers=12, batch=32768)
    traced = trace(program, Plan())
    made = estimate(program, Plan(), MK2, traced=traced)
    assert not made.fits and made.worst.overflow > 0
    found = suggestions(made, program, traced)
    assert {"half the micro-batch", "float16", "twice the IPUs for one replica"} <= {one.option for one in found}
    assert all(one.saves > 0 for one in found)
    text = complaint(made, found)
    assert "network/train would not fit on Mk2 IPUs" in text and "dense" in text and "half the micro-batch" in text


def test_code_that_may_not_fit_where_code_must_be_is_warned_of(program, traced, plain):
    assert not plain.warnings
    code = plain.memory[0].categories[Category.CODE] + plain.memory[0].categories[Category.EXCHANGE]
    narrow = attrs.evolve(MK2, executable_bytes_per_tile=code // MK2.tiles - 1)
    (warning,) = estimate(program, Plan(), narrow, traced=traced).warnings
    assert "Code would take" in warning and "of IPU 0" in warning


def test_half_the_micro_batch_is_predicted_and_what_is_not_is_said_to_be_unknown():
    program, half = (network(width=1024, layers=12, batch=batch) for batch in (32768, 16384))
    made, other = (estimate(one, Plan(), MK2) for one in (program, half))
    found = {one.option: one for one in suggestions(made, program)}
    halved = found["half the micro-batch"]
    assert halved.saves == made.worst.total - other.worst.total and halved.fits == other.fits
    assert halved.seconds == pytest.approx(2 * other.seconds_per_step - made.seconds_per_step)
    assert found["float16"].seconds is None and found["twice the IPUs for one replica"].seconds is None
