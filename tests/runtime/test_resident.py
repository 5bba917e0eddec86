"""A value with two places: never lost, whatever interrupts."""

import jax
import numpy as np
import pytest

from openipu.program.replica import Layout
from openipu.runtime import Resident, bring_all_home
from openipu.runtime.resident import New, stage, untouched
from tests.faults.interrupting import injected_at

HERE = jax.sharding.SingleDeviceSharding(jax.devices()[0])


class Store:
    def __init__(self, value=1.0):
        self.value = np.float32(value)
        self.writes = 0

    def write(self, value):
        self.value, self.writes = np.float32(value), self.writes + 1

    def resident(self):
        return Resident(lambda: self.value, self.write)


def test_the_device_has_the_truth_until_somebody_looks():
    store = Store()
    resident = store.resident()
    taken = resident.take(HERE)
    assert resident.take(HERE) is taken and not resident.newer
    commit([New(resident, taken + 1)])
    assert resident.newer and resident.version == 1 and store.value == 1.0 and resident.peek() == 2.0
    bring_all_home()
    assert store.value == 2.0 and not resident.away
    store.value = np.float32(7.0)
    assert resident.take(HERE) == 7.0


def test_refreshing_the_host_keeps_the_device_and_forgetting_drops_it():
    store = Store()
    resident = store.resident()
    commit([New(resident, resident.take(HERE) + 1)])
    resident.refresh_host()
    resident.refresh_host()
    assert store.value == 2.0 and store.writes == 1 and resident.away
    store.value = np.float32(9.0)
    assert resident.take(HERE) == 2.0
    resident.forget_device()
    assert resident.take(HERE) == 9.0


def test_replicas_have_copies_and_seeds_differ():
    values = Resident(lambda: np.array([3, 4], np.uint32), lambda _: None)
    assert values.take(HERE, Layout(2)).tolist() == [[3, 4], [3, 4]]
    seeds = np.asarray(values.take(HERE, Layout(3), seed=0)).tolist()
    assert seeds[0] == [3, 4] and len({tuple(row) for row in seeds}) == 3


def commit(new):
    stage(new).done = True


def interrupted_at(line, action):
    return injected_at(line, action, ("resident.py",))


def test_a_commit_that_is_interrupted_anywhere_changes_all_values_or_none():
    line, going = 0, True
    while going:
        line += 1
        stores = [Store() for _ in range(3)]
        residents = [s.resident() for s in stores]
        new = [New(r, r.take(HERE) + 1) for r in residents]
        going = interrupted_at(line, lambda: commit(new))
        assert len({float(r.peek()) for r in residents}) == 1
        for resident in residents:
            resident.bring_home()
        assert {float(s.value) for s in stores} <= ({1.0, 2.0} if going else {2.0}) and len(
            {s.value for s in stores}
        ) == 1
    assert line > 15


@pytest.mark.parametrize("method", ["bring_home", "refresh_host"])
def test_bringing_a_value_home_loses_it_nowhere(method):
    line, going = 0, True
    while going:
        line += 1
        store = Store()
        resident = store.resident()
        commit([New(resident, resident.take(HERE) + 1)])
        going = interrupted_at(line, getattr(resident, method))
        assert resident.peek() == 2.0
        resident.bring_home()
        assert store.value == 2.0
    assert line > 6


def test_values_of_an_execution_that_never_ends_are_nobodys():
    store = Store()
    resident = store.resident()
    commit([New(resident, resident.take(HERE) + 1)])
    stage([New(resident, resident.take(HERE) + 1)])
    assert (resident.peek(), resident.version) == (2.0, 1)
    commit([New(resident, resident.take(HERE) + 3)])
    assert (resident.peek(), resident.version) == (5.0, 2)


@pytest.mark.parametrize("look", [Resident.refresh_host, Resident.bring_home, Resident.forget_device])
def test_who_looks_while_an_execution_runs_sees_the_value_before_it_and_loses_none_after_it(look):
    store = Store()
    resident = store.resident()
    commit([New(resident, resident.take(HERE) + 1)])
    running = stage([New(resident, resident.take(HERE) + 1)])
    look(resident)
    assert store.value == (1.0 if look is Resident.forget_device else 2.0)
    running.done = True
    bring_all_home()
    assert store.value == 3.0


def test_values_are_untouched_until_somebody_asks_for_one():
    residents = [Store().resident() for _ in range(2)]
    made = [r.take(HERE) + 1 for r in residents]
    last = stage([New(r, value) for r, value in zip(residents, made, strict=True)])
    assert untouched(residents, last) is None
    last.done = True
    assert [float(value) for value in untouched(residents, last)] == [2.0, 2.0]
    residents[1].peek()
    assert untouched(residents, last) is None
