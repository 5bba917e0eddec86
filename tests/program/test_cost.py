"""Costs of jaxprs are those one counts by hand."""

import jax
import jax.numpy as jnp
import pytest

from openipu.program.cost import Cost, count


def cost_of(function, *shapes, dtype="float32"):
    return count(jax.make_jaxpr(function)(*[jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]))


def test_a_matrix_product_is_two_operations_for_each_multiply_accumulate():
    cost = cost_of(lambda a, b: a @ b, (4, 5), (5, 7))
    assert cost == Cost(flops=2 * 4 * 5 * 7, elementwise=0, bytes=4 * (20 + 35 + 28))


def test_batched_products_count_every_batch():
    assert cost_of(lambda a, b: jnp.einsum("bij,bjk->bik", a, b), (3, 4, 5), (3, 5, 7)).flops == 3 * 2 * 4 * 5 * 7


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_convolution_counts_the_channels_of_its_group(groups):
    def convolve(x, kernel):
        return jax.lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups
        )

    cost = cost_of(convolve, (2, 8, 8, 4), (3, 3, 4 // groups, 12))
    assert cost.flops == 2 * (2 * 8 * 8 * 12) * (3 * 3 * 4 // groups)


def test_elementwise_operations_count_their_results_and_reductions_their_operands():
    assert cost_of(lambda x: jnp.tanh(x) * x, (3, 4)).elementwise == 24
    assert cost_of(lambda x: x.sum(), (3, 4)).elementwise == 12


def test_renaming_memory_is_free_and_moving_it_is_not():
    assert cost_of(lambda x: x.reshape(12), (3, 4)) == Cost()
    assert cost_of(lambda x: x.T, (3, 4)) == Cost(bytes=2 * 48)


def test_a_scan_costs_its_body_as_often_as_it_runs():
    def once(x, w):
        return jnp.tanh(x @ w)

    def five_times(x, w):
        return jax.lax.scan(lambda carry, _: (once(carry, w), None), x, None, length=5)[0]

    assert cost_of(five_times, (2, 3), (3, 3)) == cost_of(once, (2, 3), (3, 3)).times(5)


def test_a_loop_without_a_count_is_counted_once_and_says_so():
    cost = cost_of(lambda x: jax.lax.while_loop(lambda c: c.sum() < 5, lambda c: c * 2, x), (3,))
    assert cost.unknown_loops == 1 and cost.elementwise >= 3


def test_a_condition_costs_its_dearest_branch():
    cost = cost_of(lambda x: jax.lax.cond(x[0, 0] > 0, lambda y: y @ y, lambda y: y, x), (4, 4))
    assert cost.flops == 2 * 4 * 4 * 4


def test_functions_within_functions_are_counted():
    inner = jax.jit(lambda a, b: a @ b)
    assert cost_of(lambda a, b: inner(a, b), (4, 5), (5, 7)).flops == 280


def test_half_precision_halves_the_bytes():
    single, half = (cost_of(lambda a, b: a @ b, (4, 5), (5, 7), dtype=d) for d in ("float32", "float16"))
    assert half.flops == single.flops and half.bytes * 2 == single.bytes
