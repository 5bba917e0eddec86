"""Cutting a step into the parts of a pipeline."""

import jax
import numpy as np
import pytest
from jax.extend import core

from openipu.compiler.execution import traced_step
from openipu.compiler.segments import split
from openipu.program.replica import ALONE
from tests.compiler import toy


@pytest.mark.parametrize("stages", [2, 4])
def test_parts_only_use_earlier_parts_and_together_are_the_step(stages):
    program = toy.program(stages)
    closed, _ = traced_step(program, ALONE, False)
    segments = split(closed, 2 * stages)
    generator = np.random.default_rng(0)
    arguments = [
        jax.random.key(0)
        if str(v.aval.dtype).startswith("key")
        else generator.random(v.aval.shape).astype(v.aval.dtype)
        for v in closed.jaxpr.invars
    ]
    environment = dict(zip(closed.jaxpr.invars, arguments, strict=True))
    for segment in segments:
        made = core.jaxpr_as_fun(segment.closed)(*[environment[v] for v in segment.inputs])
        environment.update(zip(segment.outputs, made, strict=True))
    whole = core.jaxpr_as_fun(closed)(*arguments)
    for variable, expected in zip(closed.jaxpr.outvars, whole, strict=True):
        np.testing.assert_array_equal(environment[variable], expected)


def test_each_weight_is_used_by_its_own_stage_only():
    stages = 4
    closed, _ = traced_step(toy.program(stages), ALONE, False)
    weights = closed.jaxpr.invars[: toy.LAYERS]
    for layer, weight in enumerate(weights):
        used = {s.index for s in split(closed, 2 * stages) if weight in s.inputs}
        assert used <= {layer, 2 * stages - 1 - layer}


def test_the_backward_pass_of_jax_belongs_to_the_stage_of_its_forward_pass():
    import jax.numpy as jnp

    from openipu.program import marks

    def loss(weights, x):
        for stage, w in enumerate(weights):
            with marks.part(stage):
                x = jnp.tanh(x @ w)
        return jnp.sum(x)

    square = jax.ShapeDtypeStruct((3, 3), "float32")
    closed = jax.make_jaxpr(jax.grad(loss))([square, square], square)
    for stage, weight in enumerate(closed.jaxpr.invars[:2]):
        used = {s.index for s in split(closed, 4) if weight in s.inputs}
        assert used <= {stage, 3 - stage}
    made = [v for s in split(closed, 4) if s.index >= 2 for v in s.outputs]
    assert all(gradient in made for gradient in closed.jaxpr.outvars)
