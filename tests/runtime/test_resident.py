"""A value with two places: never lost, whatever interrupts."""

import jax
import numpy as np
import pytest

from openipu.program.replica import Layout
from openipu.runtime import Resident, bring_all_home
from openipu.runtime.resident import New, commit
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
