"""Interrupts, with a device for every stage and every replica: run by test_multi_device.py."""

import random

import keras
import numpy as np
import pytest
import torch

import poptorch
from openipu.runtime import PipelineEngine
from tests.faults import interrupting
from tests.faults.test_torch import Training
from tests.tensorflow.keras.parallel import build, data, ipus, optimizer

ACCUMULATION, FILES = 8, ("runtime/pipeline_engine.py", "runtime/engine.py", "runtime/resident.py")


@pytest.mark.parametrize("stages, replicas", [(4, 1), (1, 2)])
def test_a_model_of_keras_keeps_its_values_whole(stages, replicas):
    x, y = data(1)
    x, y = (np.concatenate([a] * ACCUMULATION * replicas) for a in (x, y))
    with ipus(stages * replicas):
        model = build()
        if stages > 1:
            model.set_pipeline_stage_assignment([0, 1, 2, 3])
            model.set_pipelining_options(gradient_accumulation_steps_per_replica=ACCUMULATION)
        else:
            model.set_gradient_accumulation_options(ACCUMULATION)
        model.compile(optimizer(), keras.losses.MeanSquaredError(), steps_per_execution=ACCUMULATION)

        def train(executions):
            model.fit(x, y, batch_size=4, epochs=executions, verbose=0, shuffle=False)

        train(1)
        variables = [*model.weights, *model.optimizer.variables]

        def put(values):
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)

        def state():
            return [v.numpy() for v in variables]

        met = interrupting.check(train, state, put, random.Random(0), "pipeline", 25, 0.2)
        assert max(met) > 1


class Piped(Training):
    """The training of a small module, in two stages."""

    def __init__(self):
        self.model = poptorch_net()
        options = poptorch.Options()
        options.Training.gradientAccumulation(4)
        self.executor = poptorch.trainingModel(
            self.model, options, poptorch.optim.Adam(self.model.parameters(), lr=0.01)
        )
        self.batch = [torch.ones(4, n).repeat(4, 1) for n in (4, 2)]
        self.train(1)


def poptorch_net():
    from tests.faults.test_torch import Net

    model = Net()
    model.body[2] = poptorch.BeginBlock(model.body[2], ipu_id=1)
    return model


def test_a_module_of_torch_keeps_its_values_whole():
    one = Piped()
    assert isinstance(one.executor._session.compiled.session.engine, PipelineEngine)
    met = interrupting.check(one.train, one.state, one.put, random.Random(0), "pipeline", 25, 0.2)
    assert max(met) > 1
    before = one.state()
    one.train(1)
    after = one.state()
    assert not interrupting.equal(before, after)
    line, stopped = 1, True
    while stopped:
        one.put(before)
        stopped = interrupting.injected_at(line, lambda: one.train(1), FILES)
        found = one.state()
        assert interrupting.equal(found, before) or interrupting.equal(found, after)
        line += 7
    assert line > 300
    one.executor.destroy()
