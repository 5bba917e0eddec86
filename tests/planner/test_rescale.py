"""A program for another micro-batch is predicted from the captured one as if it had been captured so."""

import attrs
import jax
import jax.numpy as jnp
import pytest
from jax import lax

from openipu import model
from openipu.hardware import BOW
from openipu.model.rescaling.rescale import rescaled
from openipu.model.rescaling.sample_axes import Place, places_of
from openipu.program import Plan
from tests.planner.programs import cnn


@pytest.mark.parametrize("size", [4, 16, 24])
def test_it_is_predicted_as_if_it_had_been_captured_so(size):
    plan = Plan()
    found = rescaled(model.trace(cnn(8), plan), size / 8)
    expected = model.estimate(cnn(size), plan, BOW)
    got = model.estimate(found.program, plan, BOW, traced=found)
    assert got.micro_batch == size
    assert got.seconds_per_step == pytest.approx(expected.seconds_per_step, rel=1e-6)
    assert got.flops_per_step == expected.flops_per_step
    # A scatter's operands differ by some bytes, and with them the code that moves them.
    assert got.worst.categories == pytest.approx(expected.worst.categories, rel=1e-4)
    shapes = [(o.kind, o.phase, o.shape) for o in got.operations]
    assert shapes == [(o.kind, o.phase, o.shape) for o in expected.operations]
    assert sum(o.bytes for o in got.operations) == pytest.approx(sum(o.bytes for o in expected.operations), rel=1e-3)


def place_of(function, *shapes, samples=0):
    closed = jax.make_jaxpr(function)(*(jnp.zeros(shape) for shape in shapes))
    given = [None] * len(shapes)
    given[samples] = Place(0)
    axes = places_of(closed.jaxpr, given)
    return axes.get(closed.jaxpr.outvars[0])


CASES = {
    "transpose": (lambda x: x.transpose(2, 0, 1), [(6, 3, 5)], Place(1)),
    "merged": (lambda x: x.reshape(18, 5), [(6, 3, 5)], Place(0)),
    "merged inside": (lambda x: x.transpose(1, 0, 2).reshape(18, 5), [(6, 3, 5)], Place(0, 3)),
    "split again": (lambda x: x.transpose(1, 0, 2).reshape(18, 5).reshape(3, 6, 5), [(6, 3, 5)], Place(1)),
    "summed": (lambda x: x.sum(1), [(6, 3, 5)], Place(0)),
    "summed over samples": (lambda x: x.sum(0), [(6, 3, 5)], None),
    "product": (lambda x, w: x @ w, [(6, 3), (3, 4)], Place(0)),
    "gradient of weights": (lambda x, g: x.T @ g, [(6, 3), (6, 4)], None),
    "batched product": (lambda x, y: jnp.einsum("bij,bjk->kbi", x, y), [(6, 3, 4), (6, 4, 5)], Place(1)),
    "looked up": (lambda x: jnp.take(jnp.zeros((9, 4)), x.astype(int), axis=0), [(6, 2)], Place(0)),
    "stacked": (lambda x: jnp.stack([x, x]), [(6, 3)], Place(1)),
    "loop": (lambda x: lax.scan(lambda c, _: (c * 2, c.T), x, length=4)[1], [(6, 3)], Place(2)),
    "called": (jax.jit(lambda x: x.T), [(6, 3)], Place(1)),
}


@pytest.mark.parametrize("name", CASES)
def test_samples_are_followed_through(name):
    function, shapes, expected = CASES[name]
    assert place_of(function, *shapes) == expected


def test_what_has_no_samples_stays():
    traced = model.trace(cnn(8), Plan())
    found = rescaled(traced, 3.0)
    weights = len(traced.program.shared)
    for before, after in zip(traced.step.jaxpr.invars[:weights], found.step.jaxpr.invars[:weights], strict=True):
        assert before.aval.shape == after.aval.shape
    gradients = [v.aval.shape for v in found.step.jaxpr.outvars[: found.gradients]]
    assert gradients == [slot.shape for slot in attrs.evolve(traced.program).shared]
