"""Schedules follow the reference's formulae and drawings, and what the formulae promise holds when simulated."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openipu.program.order import in_slot, order
from openipu.program.schedule import (
    Kind,
    Schedule,
    ScheduleError,
    Work,
    check_count,
    count_minimum,
    count_multiple,
    stash_depth,
    timeline,
    total_slots,
)
from openipu.program.timing import idle_fraction, spans

GROUPED, INTERLEAVED, SEQUENTIAL = Schedule
check = settings(max_examples=60, deadline=None, derandomize=True)

DRAWINGS = [
    (
        (GROUPED, 2, 4, True),
        """
        F0   F1    F2    F3+B0   B1    B2   B3
        .    F0  F1+B0   F2+B1  F3+B2  B3   .
        """,
    ),
    (
        (GROUPED, 4, 8, True),
        """
        F0 F1 F2  F3  F4    F5    F6   F7+B0  B1    B2    B3   B4   B5   B6   B7
        .  F0 F1  F2  F3    F4   F5+B0 F6+B1 F7+B2  B3    B4   B5   B6   B7   .
        .  .  F0  F1  F2   F3+B0 F4+B1 F5+B2 F6+B3 F7+B4  B5   B6   B7   .    .
        .  .  .   F0 F1+B0 F2+B1 F3+B2 F4+B3 F5+B4 F6+B5 F7+B6 B7   .    .    .
        """,
    ),
    (
        (INTERLEAVED, 2, 4, True),
        """
        F0 .  F1 B0 F2 B1 F3 B2 .  B3
        .  F0 B0 F1 B1 F2 B2 F3 B3 .
        """,
    ),
    (
        (INTERLEAVED, 4, 4, True),
        """
        F0 .  F1 .  F2 .  F3 B0 .  B1 .  B2 .  B3
        .  F0 .  F1 .  F2 B0 F3 B1 .  B2 .  B3 .
        .  .  F0 .  F1 B0 F2 B1 F3 B2 .  B3 .  .
        .  .  .  F0 B0 F1 B1 F2 B2 F3 B3 .  .  .
        """,
    ),
    (
        (SEQUENTIAL, 2, 2, True),
        """
        F0 .  .  B0 F1 .  .  B1
        .  F0 B0 .  .  F1 B1 .
        """,
    ),
    (
        (SEQUENTIAL, 4, 1, True),
        """
        F0 .  .  .  .  .  .  B0
        .  F0 .  .  .  .  B0 .
        .  .  F0 .  .  B0 .  .
        .  .  .  F0 B0 .  .  .
        """,
    ),
    (
        (GROUPED, 2, 4, False),
        """
        F0 F1 F2 F3 .
        .  F0 F1 F2 F3
        """,
    ),
    (
        (GROUPED, 4, 4, False),
        """
        F0 F1 F2 F3 .  .  .
        .  F0 F1 F2 F3 .  .
        .  .  F0 F1 F2 F3 .
        .  .  .  F0 F1 F2 F3
        """,
    ),
]


@st.composite
def pipelines(draw, shared=True):
    schedule = draw(st.sampled_from(Schedule))
    training = draw(st.booleans())
    stages = draw(st.integers(1, 6))
    count = draw(st.integers(1, 14))
    mapping = draw(st.permutations(range(stages)))
    if shared and not (schedule is INTERLEAVED and training):
        mapping = draw(st.lists(st.integers(0, stages), min_size=stages, max_size=stages))
    return timeline(schedule, stages, count, training, mapping)


def needs(line, work):
    """The work whose results a piece of work uses directly.

    A forward pass uses the activations of the stage before; a backward pass those of its own forward pass and the
    gradient from the stage after. An update uses the last backward pass of all stages.
    """
    if work.kind is Kind.UPDATE:
        return [Work(other, line.count - 1, Kind.BACKWARD) for other in range(line.stages)]
    if work.kind is Kind.FORWARD:
        return [Work(work.stage - 1, work.micro_batch, Kind.FORWARD)] if work.stage else []
    after = [Work(work.stage + 1, work.micro_batch, Kind.BACKWARD)] if work.stage + 1 < line.stages else []
    return [Work(work.stage, work.micro_batch, Kind.FORWARD), *after]


def placed(line):
    """The time slot of each piece of work, without updates."""
    return {work: slot for slot, row in enumerate(line.slots) for cell in row for work in cell}


@pytest.mark.parametrize(("arguments", "drawing"), DRAWINGS, ids=lambda value: None)
def test_the_drawings_of_the_reference_are_reproduced(arguments, drawing):
    line = timeline(*arguments)
    drawn = [["+".join(map(str, row[device])) or "." for row in line.slots] for device in range(line.devices)]
    assert drawn == [row.split() for row in drawing.strip().splitlines()]


@check
@given(pipelines())
def test_every_micro_batch_goes_through_every_stage_once_and_in_order(line):
    works = [work for row in line.slots for cell in row for work in cell]
    kinds = (Kind.FORWARD, Kind.BACKWARD) if line.training else (Kind.FORWARD,)
    assert len(works) == len(set(works)) == line.stages * line.count * len(kinds)
    for stage in range(line.stages):
        for kind in kinds:
            taken = [work.micro_batch for work in works if work.stage == stage and work.kind is kind]
            assert taken == list(range(line.count))
    updates = [work for cell in line.updates for work in cell]
    assert sorted(work.stage for work in updates) == (list(range(line.stages)) if line.training else [])


@check
@given(pipelines())
def test_work_is_on_the_ipu_of_its_stage(line):
    for row in (*line.slots, line.updates):
        assert len(row) == line.devices
        assert all(line.device_mapping[work.stage] == device for device, cell in enumerate(row) for work in cell)


@check
@given(pipelines())
def test_work_comes_after_all_it_needs(line):
    slot = placed(line)
    assert all(slot[other] < when for work, when in slot.items() for other in needs(line, work))
    if line.training:
        update = line.updates[line.device_mapping[0]][0]
        assert {other.stage for other in needs(line, update)} == set(range(line.stages))


@check
@given(pipelines())
def test_no_ipu_does_two_things_at_once(line):
    for row in line.slots:
        works = [work for cell in row for work in cell]
        assert len({(work.stage, work.kind) for work in works}) == len(works)
        if line.schedule is SEQUENTIAL:
            assert len(works) == 1
        if line.schedule is INTERLEAVED and line.training:
            assert all(len(cell) <= 1 for cell in row)


@check
@given(pipelines())
def test_total_slots_are_those_of_the_formulae(line):
    n, count = line.stages, line.count
    if line.training:
        expected = {GROUPED: count + 2 * n - 1, INTERLEAVED: 2 * count + 2 * n - 2, SEQUENTIAL: 2 * n * count}
    else:
        expected = {GROUPED: count + n - 1, INTERLEAVED: count + n - 1, SEQUENTIAL: n * count}
    assert len(line.slots) == expected[line.schedule] == total_slots(line.schedule, n, count, line.training)


@check
@given(pipelines().filter(lambda line: line.training))
def test_stash_depths_are_those_of_a_simulation(line):
    waiting = [0] * line.stages
    deepest = [0] * line.stages
    for row in line.slots:
        works = [work for cell in row for work in cell]
        for work in works:
            if work.kind is Kind.BACKWARD:
                waiting[work.stage] -= 1
                deepest[work.stage] = max(deepest[work.stage], waiting[work.stage])
        for work in works:
            waiting[work.stage] += work.kind is Kind.FORWARD
    for stage in range(line.stages):
        # An execution with fewer micro-batches does not fill the stash.
        assert deepest[stage] == min(stash_depth(line.schedule, line.stages, stage), line.count - 1)


def test_stash_depths_of_the_reference():
    assert [stash_depth(GROUPED, 4, stage) for stage in range(4)] == [6, 4, 2, 0]
    assert [stash_depth(INTERLEAVED, 4, stage) for stage in range(4)] == [3, 2, 1, 0]
    assert [stash_depth(SEQUENTIAL, 4, stage) for stage in range(4)] == [0, 0, 0, 0]
    with pytest.raises(ValueError, match=r"stage must be one of 0 to 3\. Received: stage=4"):
        stash_depth(GROUPED, 4, 4)


@check
@given(pipelines())
def test_one_device_can_run_the_order(line):
    done = set()
    for work in order(line):
        assert done.issuperset(needs(line, work))
        done.add(work)
    assert len(order(line)) == len(done) == len(placed(line)) + (line.stages if line.training else 0)


@check
@given(pipelines(), st.randoms(use_true_random=False))
def test_concurrent_ipus_finish_their_work_whoever_is_faster(line, random):
    rows = (*line.slots, line.updates)
    left = [[work for row in rows for work in in_slot(row[device])] for device in range(line.devices)]
    done = set()
    while any(left):
        ready = [queue for queue in left if queue and done.issuperset(needs(line, queue[0]))]
        assert ready, "deadlock"
        done.add(random.choice(ready).pop(0))
    assert done == set(order(line))


@check
@given(pipelines(shared=False))
def test_the_bubble_is_that_of_theory(line):
    n = line.stages
    expected = (n - 1) / n if line.schedule is SEQUENTIAL else (n - 1) / (line.count + n - 1)
    assert idle_fraction(line) == pytest.approx(expected)


@check
@given(pipelines(), st.data())
def test_spans_overlap_on_no_ipu_and_keep_the_slots_apart(line, data):
    times = st.floats(0.01, 10)
    durations = {(stage, kind): data.draw(times) for stage in range(line.stages) for kind in Kind}
    ends = {}
    by_slot = {}
    for span in spans(line, durations):
        assert span.end - span.start == pytest.approx(durations[span.work.stage, span.work.kind])
        assert span.start >= ends.get(span.device, 0.0)
        ends[span.device] = span.end
        first, last = by_slot.get(span.slot, (span.start, span.end))
        by_slot[span.slot] = (min(first, span.start), max(last, span.end))
    for slot in range(1, len(by_slot)):
        assert by_slot[slot][0] == by_slot[slot - 1][1]
    assert -1e-9 <= idle_fraction(line, durations) < 1


def test_durations_must_be_complete():
    with pytest.raises(ValueError, match=r"durations must name .* Received: none for stage 1, Kind\.FORWARD"):
        idle_fraction(timeline(GROUPED, 2, 4, False), {(0, Kind.FORWARD): 1.0})


@pytest.mark.parametrize(
    ("schedule", "training", "multiple"),
    [
        (GROUPED, True, 8),
        (GROUPED, False, 4),
        (INTERLEAVED, True, 4),
        (INTERLEAVED, False, 4),
        (SEQUENTIAL, True, 1),
        (SEQUENTIAL, False, 1),
    ],
)
def test_count_multiples_of_the_reference(schedule, training, multiple):
    assert count_multiple(schedule, 4, training) == multiple
    check_count(schedule, 4, 3 * multiple, training)
    if multiple > 1:
        with pytest.raises(ScheduleError) as raised:
            check_count(schedule, 4, multiple + 1, training)
        assert str(raised.value) == (
            f"The number of iterations of the pipeline must be a multiple of {multiple}, but it is {multiple + 1}. "
            "This number might be called `gradient_accumulation_count`, `gradient_accumulation_steps_per_replica` or "
            f"`steps_per_execution` depending on the API used. Use {multiple} or {2 * multiple}."
        )


def test_a_count_below_the_multiple_is_answered_with_the_multiple():
    with pytest.raises(ScheduleError, match=r"Use 8\.$"):
        check_count(GROUPED, 4, 3, True)
    with pytest.raises(ScheduleError, match="must be at least 1, but it is 0"):
        check_count(GROUPED, 4, 0, True)


@pytest.mark.parametrize(("training", "least"), [(True, 10), (False, 6)])
def test_io_tiles_ask_for_a_minimum_and_no_multiple(training, least):
    assert count_multiple(GROUPED, 4, training, io_tiles=True) == 1
    assert count_minimum(GROUPED, 4, training, io_tiles=True) == least
    check_count(GROUPED, 4, least, training, io_tiles=True)
    check_count(GROUPED, 4, least + 1, training, io_tiles=True)
    with pytest.raises(
        ScheduleError, match=rf"must be at least {least}, but it is {least - 1}\..*Use {least} or more\."
    ):
        check_count(GROUPED, 4, least - 1, training, io_tiles=True)


@check
@given(
    st.sampled_from([GROUPED, SEQUENTIAL]),
    st.booleans(),
    st.lists(st.integers(0, 4), min_size=1, max_size=6),
    st.integers(1, 6),
)
def test_shared_mappings_take_the_counts_of_their_stages_and_of_their_ipus(schedule, training, mapping, times):
    for size in (len(mapping), len(set(mapping))):
        check_count(schedule, len(mapping), times * count_multiple(schedule, size, training), training, mapping)


def test_stages_all_on_one_ipu_take_any_count():
    check_count(GROUPED, 3, 5, True, [0, 0, 0])


def test_interleaved_training_refuses_two_stages_on_one_ipu():
    for refused in (timeline, check_count):
        with pytest.raises(NotImplementedError, match=r"^The pipelining schedule 'Interleaved' does not currently"):
            refused(INTERLEAVED, 3, 3, True, [0, 1, 0])
    assert timeline(INTERLEAVED, 3, 3, False, [0, 1, 0]).devices == 2


def test_wrong_mappings_are_refused():
    with pytest.raises(TypeError, match="device_mapping argument needs to be a list or a tuple"):
        timeline(GROUPED, 2, 4, True, "01")
    with pytest.raises(ValueError, match="Each stage must be mapped to an IPU: 3 mappings != 2 stages"):
        timeline(GROUPED, 2, 4, True, [0, 1, 2])
    with pytest.raises(ValueError, match="-1 is not an IPU number"):
        timeline(GROUPED, 2, 4, True, [0, -1])
    with pytest.raises(ValueError, match=r"stages must be a positive integer\. Received: stages=0"):
        timeline(GROUPED, 0, 4, True)
    with pytest.raises(ValueError, match=r"count must be a positive integer\. Received: count=0"):
        timeline(GROUPED, 2, 0, True)


def test_work_reads_as_it_is_drawn():
    assert str(Work(2, 3, Kind.BACKWARD)) == "B3"
    assert str(Work(2, None, Kind.UPDATE)) == "U"
