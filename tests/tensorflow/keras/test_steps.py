"""The rules about numbers of steps, as properties."""

import logging
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openipu.tensorflow.keras.steps import infer

COUNTS = st.integers(1, 200)


@given(count=COUNTS, per_execution=COUNTS, replicas=st.integers(1, 8))
def test_executions_fill_an_epoch_exactly_or_are_refused(count, per_execution, replicas):
    used = min(per_execution, count)
    if count % used:
        with pytest.raises(ValueError, match=rf"\({used}\) must be a divisor.*\({count}\)") as caught:
            infer(count * replicas, None, per_execution, replicas)
        assert ("to this replica" in str(caught.value)) == (replicas > 1)
        return
    steps = infer(count * replicas, None, per_execution, replicas)
    assert (steps.count, steps.per_execution, steps.restart) == (count, used, True)


@given(length=COUNTS, replicas=st.integers(2, 8))
def test_elements_that_do_not_go_round_all_replicas_are_dropped(length, replicas):
    if length < replicas:
        with pytest.raises(ValueError, match=f"contains {length} items, but all {replicas} replicas"):
            infer(length, None, 1, replicas)
    else:
        assert infer(length, None, 1, replicas).count == length // replicas


@given(steps=COUNTS, epochs=st.integers(1, 5))
def test_data_that_never_ends_goes_on_between_epochs(steps, epochs):
    for length in (math.inf, None):
        made = infer(length, steps, 1, epochs=epochs)
        assert (made.count, made.restart) == (steps, False)
        with pytest.raises(ValueError, match="specify"):
            infer(length, None, 1)


@given(length=COUNTS, steps=COUNTS, epochs=st.integers(1, 5))
def test_data_must_last_for_all_epochs_unless_each_is_the_whole(length, steps, epochs):
    needed = steps if steps == length else steps * epochs
    if needed > length:
        with pytest.raises(ValueError, match=f"at least {needed} batches .* only generate {length} batches"):
            infer(length, steps, 1, epochs=epochs)
    else:
        assert infer(length, steps, 1, epochs=epochs).count == steps


def test_worked_examples_of_the_reference(caplog):
    assert infer(960, None, 96).count == 960
    assert infer(960, None, 24, 4) == infer(960, None, 24, 4)
    assert (infer(960, None, 24, 4).count, infer(960, None, 24, 4).per_execution) == (240, 24)
    with caplog.at_level(logging.WARNING, "openipu"):
        assert infer(10, None, 2, 4).count == 2
    assert (
        "Dataset of length 10 is being evenly distributed between 4 replicas. "
        "The remaining 2 batch(es) will be dropped."
    ) in caplog.text
    with pytest.raises(ValueError, match=r"\(20\).*\(50\) in the dataset provided to this replica"):
        infer(100, None, 20, 2)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "openipu"):
        made = infer(math.inf, 64, 64, 2)
    assert (made.count, made.per_execution) == (32, 32)
    assert "provided to this replica only contains 32 batches. Using 32" in caplog.text


@pytest.mark.parametrize("steps", [0, -3])
def test_steps_must_be_positive(steps):
    with pytest.raises(ValueError, match=f"positive integer. Received: steps={steps}"):
        infer(10, steps, 1)
