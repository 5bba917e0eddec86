"""What holds of any prediction, checked on networks that no constant was fitted on."""

import math

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openipu.hardware import BOW, MK1, MK2
from openipu.model import Category, OperationKind, Options, Recompute, estimate, planner, trace
from openipu.program import Plan
from tests.model import zoo

PLAN = Plan(100)
PRODUCTS = (OperationKind.MATMUL, OperationKind.CONVOLUTION)
# What a prediction of time is not uncertain by: a larger problem may get a plan that suits it better.
SLACK = 0.97


class Traced:
    """A network, traced once."""

    def __init__(self, make, dtype, factor):
        batch = make.__defaults__[0] * factor
        self.program = make(batch=batch, dtype=dtype)
        self._traced = trace(self.program, PLAN)

    def under(self, target=MK2, options=Options(), **plan):  # noqa: B008  (frozen)
        return estimate(self.program, attrs.evolve(PLAN, **plan), target, options, self._traced)


@pytest.fixture(scope="module")
def network():
    known = {}

    def made(make, dtype=np.float32, factor=1):
        key = (make, dtype, factor)
        return known.get(key) or known.setdefault(key, Traced(*key))

    return made


every = pytest.mark.parametrize("make", zoo.NETWORKS, ids=lambda make: make.__name__)


@every
@pytest.mark.parametrize("target", [MK1, MK2, BOW], ids=lambda target: target.name)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_no_product_is_faster_than_the_matrix_unit(network, make, target, dtype):
    made = network(make, dtype, 16).under(target)
    rate = target.float_macs if dtype is np.float32 else target.half_float_macs
    for operation in made.operations:
        if operation.kind in PRODUCTS:
            assert operation.flops <= 2 * rate * target.tiles * operation.cycles, operation.name
            assert 0 <= operation.exchange_cycles <= operation.cycles
    products = sum(o.flops * o.count for o in made.operations if o.kind in PRODUCTS)
    assert products / (made.shares.compute + made.shares.exchange) < 2 * rate * target.tiles * target.clock_hz
    assert 0 < made.utilisation < 1


@every
def test_memory_is_the_sum_of_its_parts_and_holds_what_must_be_there(network, make):
    one = network(make)
    memory = one.under(gradient_accumulation=4).memory[0]
    half = len(one.program.shared) // 2
    weights = sum(math.prod(slot.shape) * 4 for slot in one.program.shared[:half])
    categories = memory.categories
    assert categories[Category.WEIGHTS] == categories[Category.OPTIMIZER_STATE] == weights
    assert categories[Category.ACCUMULATORS] == weights
    assert categories[Category.INPUT_OUTPUT] >= math.prod(one.program.batch[0].shape) * 4
    assert memory.total == sum(categories.values())
    assert memory.total == pytest.approx(memory.tiles.sum(), rel=0.01)
    assert memory.total / len(memory.tiles) <= memory.worst_tile and memory.low <= memory.total <= memory.high
    by_layer = sum(one.total for one in memory.contributors)
    assert 0.5 * memory.total <= by_layer <= 1.01 * memory.total


@every
def test_a_product_has_its_operands_and_results_in_memory(network, make):
    """At the peak there is at least what the largest operation has made, beside weights and data that are fed."""
    made = network(make, factor=16).under()
    largest = max(math.prod(o.shape) * 4 for o in made.operations if o.phase.value == "forward")
    assert made.memory[0].categories[Category.TEMPORARIES] >= largest


@every
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_larger_batch_takes_longer_and_more_memory_but_less_than_in_proportion(network, make, dtype):
    small, large = (network(make, dtype, factor).under() for factor in (4, 16))
    assert small.seconds_per_step < large.seconds_per_step <= 4 * small.seconds_per_step / SLACK
    assert small.worst.total < large.worst.total <= 4 * small.worst.total
    assert small.throughput <= large.throughput / SLACK
    assert small.flops_per_step == pytest.approx(large.flops_per_step / 4, rel=0.05)


@every
def test_narrow_numbers_take_less_time_and_memory(network, make):
    wide, narrow = (network(make, dtype, 16).under() for dtype in (np.float32, np.float16))
    assert narrow.seconds_per_step < wide.seconds_per_step
    assert 0.4 * wide.worst.total < narrow.worst.total < wide.worst.total


@every
def test_more_replicas_take_no_less_time_for_a_step_and_give_more_samples(network, make):
    made = [network(make).under(replicas=replicas, gradient_accumulation=4) for replicas in (1, 2, 4, 8, 16)]
    steps, rates = [one.seconds_per_step for one in made], [one.throughput for one in made]
    assert steps == sorted(steps) and rates == sorted(rates)
    assert all(one.throughput <= n * made[0].throughput for one, n in zip(made, (1, 2, 4, 8, 16), strict=True))
    assert all(one.worst.total == made[0].worst.total for one in made)


@every
def test_accumulation_shares_the_update_among_steps(network, make):
    each, shared = (network(make).under(replicas=4, gradient_accumulation=count) for count in (1, 10))
    assert shared.shares.update == pytest.approx(each.shares.update / 10)
    assert shared.shares.replica_exchange == pytest.approx(each.shares.replica_exchange / 10)
    assert shared.seconds_per_step < each.seconds_per_step


@every
def test_recomputation_saves_memory_for_time(network, make):
    kept, again = (network(make, factor=16).under(options=Options(recompute=kind)) for kind in
                   (Recompute.NONE, Recompute.CHEAP))  # fmt: skip
    assert again.worst.total <= kept.worst.total and again.seconds_per_step >= kept.seconds_per_step
    assert again.flops_per_step == kept.flops_per_step


SIZES = st.integers(1, 3000)


@settings(max_examples=40, deadline=None)
@given(rows=SIZES, inner=SIZES, columns=SIZES, half=st.booleans(), partials=st.booleans())
def test_a_product_takes_at_least_what_its_arithmetic_and_its_operands_take(rows, inner, columns, half, partials):
    chip = planner.chip(MK2, MK2.tiles, half, partials, 0.6)
    made = planner.product(chip, rows, inner, columns)
    rate = (MK2.half_macs if partials else MK2.half_float_macs) if half else MK2.float_macs
    assert made.cycles >= rows * inner * columns / (rate * MK2.tiles)
    assert 1 <= made.tiles <= MK2.tiles
    # The factor that streams is on the tiles as a whole, however the other one is cut.
    assert made.bytes >= min(inner * columns, rows * inner) * chip.item
    assert planner.product(chip, columns, inner, rows).cycles == made.cycles


@settings(max_examples=20, deadline=None)
@given(batch=st.integers(1, 8), size=st.integers(4, 64), inputs=st.integers(1, 128), outputs=st.integers(1, 128))
def test_a_convolution_takes_at_least_what_its_arithmetic_takes_and_twice_the_batch_no_less(
    batch, size, inputs, outputs
):
    chip = planner.chip(MK2, MK2.tiles, True, False, 0.6)
    one, two = (planner.convolution(chip, n, (size, size), inputs, outputs, (3, 3)) for n in (batch, 2 * batch))
    flops = batch * size * size * inputs * outputs * 9
    assert one.cycles >= flops / (MK2.half_float_macs * MK2.tiles)
    assert one.cycles <= two.cycles / SLACK
