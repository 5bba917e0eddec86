"""Run by poprun: trains a program of the core over all instances, and compares it with NumPy."""

import sys

import numpy as np

import popdist
from openipu import instances
from openipu.compiler import compile_program
from openipu.instances.popdist import getInstanceIndex, getNumInstances, getNumLocalReplicas, getNumTotalReplicas
from openipu.program import OutputMode, Plan, Reduction
from openipu.runtime import DeviceEngine
from tests.compiler import toy

STEPS, ACCUMULATION = 12, 3


def main():
    popdist.init()
    index, count, local, total = getInstanceIndex(), getNumInstances(), getNumLocalReplicas(), getNumTotalReplicas()
    program = toy.program()
    for outputs in OutputMode:
        plan = Plan(STEPS, local, ACCUMULATION, Reduction.MEAN, outputs=outputs, instances=count)
        everyone = [f.reshape(STEPS, total, *f.shape[-2:]) for f in toy.feeds(STEPS, total)]
        expected = toy.reference(toy.Store(program).home(), everyone if total > 1 else [f[:, 0] for f in everyone],
                                 ACCUMULATION, total, "mean")  # fmt: skip
        store = toy.Store(program)
        engine = DeviceEngine(compile_program(program, plan), store.shared, store.local)
        own = [f[:, index * local : (index + 1) * local] for f in everyone]
        results = engine.run(engine.place(own), range(total))
        # State is that of the first of all replicas, the end's results are those of all, outputs are this instance's.
        for name, value in store.home().items():
            np.testing.assert_allclose(value, expected[name], rtol=2e-5, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(results.finished[0], expected["totals"], rtol=1e-5)
        losses = expected["losses"].reshape(STEPS, total)[:, index * local : (index + 1) * local]
        np.testing.assert_allclose(results.outputs[0], losses[-1] if outputs is OutputMode.FINAL else losses, rtol=1e-5)
        weights = np.concatenate([store.values[f"w{i}"].ravel() for i in range(toy.LAYERS)])
        everyones = instances.gather(weights)
        np.testing.assert_array_equal(everyones, np.broadcast_to(weights, everyones.shape))
    devices = engine.executable.spread.devices // count
    print("trained on", devices, "devices of each of", count, "instances", *sys.argv[1:])


main()
