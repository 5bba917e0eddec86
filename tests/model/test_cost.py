"""Costs of jaxprs are those one counts by hand."""

import jax
import jax.numpy as jnp
import pytest

from openipu.hardware import MK2
from openipu.model.cost import Cost, cost


def cost_of(function, *shapes, dtype="float32"):
    return cost(jax.make_jaxpr(function)(*[jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]), MK2)


def test_a_matrix_product_is_two_operations_for_each_multiply_accumulate():
    assert cost_of(lambda a, b: a @ b, (4, 5), (5, 7)).flops == 2 * 4 * 5 * 7


def test_batched_products_count_every_batch():
    assert cost_of(lambda a, b: jnp.einsum("bij,bjk->bik", a, b), (3, 4, 5), (3, 5, 7)).flops == 3 * 2 * 4 * 5 * 7


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_convolution_counts_the_channels_of_its_group(groups):
    def convolve(x, kernel):
        return jax.lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups
        )

    found = cost_of(convolve, (2, 8, 8, 4), (3, 3, 4 // groups, 12))
    assert found.flops == 2 * (2 * 8 * 8 * 12) * (3 * 3 * 4 // groups)


def test_renaming_memory_is_free_and_moving_it_is_not():
    assert cost_of(lambda x: x.reshape(12), (3, 4)) == Cost()
    assert cost_of(lambda x: x.transpose(2, 0, 1), (3, 4, 5)).seconds > 0


def test_a_scan_costs_its_body_as_often_as_it_runs():
    def once(x, w):
        return jnp.tanh(x @ w)

    def five_times(x, w):
        return jax.lax.scan(lambda carry, _: (once(carry, w), None), x, None, length=5)[0]

    one, five = cost_of(once, (2, 3), (3, 3)), cost_of(five_times, (2, 3), (3, 3))
    assert five.flops == 5 * one.flops and five.seconds == pytest.approx(5 * one.seconds)


def test_a_loop_that_counts_is_counted_and_one_that_looks_at_data_says_so():
    counted = cost_of(lambda x: jax.lax.fori_loop(0, 7, lambda i, c: c @ c, x), (4, 4))
    assert counted.unknown_loops == 0 and counted.flops == 7 * 2 * 4 * 4 * 4
    looking = cost_of(lambda x: jax.lax.while_loop(lambda c: c.sum() < 5, lambda c: c @ c, x), (4, 4))
    assert looking.unknown_loops == 1 and looking.flops == 2 * 4 * 4 * 4


def test_a_condition_costs_its_longest_branch():
    found = cost_of(lambda x: jax.lax.cond(x[0, 0] > 0, lambda y: y @ y, lambda y: y, x), (4, 4))
    assert found.flops == 2 * 4 * 4 * 4


def test_functions_within_functions_are_counted():
    inner = jax.jit(lambda a, b: a @ b)
    assert cost_of(lambda a, b: inner(a, b), (4, 5), (5, 7)).flops == 280


def test_what_nobody_uses_costs_nothing():
    assert cost_of(lambda a, b: (a @ b, a)[1], (4, 5), (5, 7)) == Cost()


def test_half_precision_is_faster():
    single, half = (cost_of(lambda a, b: a @ b, (512, 512), (512, 512), dtype=d) for d in ("float32", "float16"))
    assert half.flops == single.flops and half.seconds < single.seconds
