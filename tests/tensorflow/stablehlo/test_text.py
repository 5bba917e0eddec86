"""Operations that TensorFlow seldom writes, from hand-written StableHLO, against NumPy."""

import jax
import numpy as np
import pytest

from openipu.errors import UnsupportedError
from openipu.tensorflow.stablehlo import lower

A = np.array([[1.0, -2.0, 3.0], [-4.0, 5.0, 6.0]], np.float32)
V = np.array([3.0, 1.0, 2.0, 5.0], np.float32)
TWO_BY_THREE, FOUR = "tensor<2x3xf32>", "tensor<4xf32>"


def _run(body, result, *arguments, before=""):
    kinds = {np.dtype(np.float32): "f32", np.dtype(np.int32): "i32", np.dtype(np.bool_): "i1"}
    types = [f"tensor<{''.join(f'{n}x' for n in a.shape)}{kinds[a.dtype]}>" for a in arguments]
    names = ", ".join(f"%{letter}: {kind}" for letter, kind in zip("abcde", types, strict=False))
    text = f"{before}\nfunc.func @main({names}) -> {result} {{\n{body}\nreturn %r : {result}\n}}"
    with jax.enable_x64(True):
        return np.asarray(lower(text)(*arguments)[0])


UNARY = {
    "cbrt": (np.cbrt, "stablehlo"),
    "logistic": (lambda x: 1 / (1 + np.exp(-x)), "stablehlo"),
    "round_nearest_afz": (lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5), "stablehlo"),
    "sign": (np.sign, "stablehlo"),
    "asinh": (np.arcsinh, "chlo"),
    "sinh": (np.sinh, "chlo"),
    "cosh": (np.cosh, "chlo"),
    "atan": (np.arctan, "chlo"),
    "tan": (np.tan, "chlo"),
}


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_value(name):
    expected, dialect = UNARY[name]
    kinds = TWO_BY_THREE if dialect == "stablehlo" else f"{TWO_BY_THREE} -> {TWO_BY_THREE}"
    received = _run(f"%r = {dialect}.{name} %a : {kinds}", TWO_BY_THREE, A)
    np.testing.assert_allclose(received, expected(A), rtol=1e-5)


def test_bits_are_counted():
    x = np.array([0, 1, 7, -1], np.int32)
    assert _run("%r = stablehlo.count_leading_zeros %a : tensor<4xi32>", "tensor<4xi32>", x).tolist() == [32, 31, 29, 0]
    assert _run("%r = stablehlo.popcnt %a : tensor<4xi32>", "tensor<4xi32>", x).tolist() == [0, 1, 3, 32]


def test_reduced_precision():
    received = _run(f"%r = stablehlo.reduce_precision %a, format = e8m2 : {FOUR}", FOUR, np.full(4, 1.3, np.float32))
    np.testing.assert_array_equal(received, np.full(4, 1.25))


def test_a_total_order_puts_minus_zero_first():
    a, b = np.array([-0.0, np.nan, 1.0], np.float32), np.array([0.0, np.inf, 1.0], np.float32)
    body = "%r = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>"
    assert _run(body, "tensor<3xi1>", a, b).tolist() == [True, False, False]


def test_a_reduction_starts_from_any_value():
    body = f"""%i = stablehlo.constant dense<10.0> : tensor<f32>
    %r = stablehlo.reduce(%a init: %i) applies stablehlo.add across dimensions = [1]
      : ({TWO_BY_THREE}, tensor<f32>) -> tensor<2xf32>"""
    np.testing.assert_array_equal(_run(body, "tensor<2xf32>", A), A.sum(1) + 10)


def test_a_window_joined_by_any_computation():
    body = f"""%i = stablehlo.constant dense<0.0> : tensor<f32>
    %r = "stablehlo.reduce_window"(%a, %i) <{{window_dimensions = array<i64: 2>}}> ({{
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %m = stablehlo.abs %y : tensor<f32>
        %s = stablehlo.add %x, %m : tensor<f32>
        stablehlo.return %s : tensor<f32>
    }}) : ({FOUR}, tensor<f32>) -> tensor<3xf32>"""
    np.testing.assert_array_equal(_run(body, "tensor<3xf32>", V), V[:-1] + V[1:])


def test_the_smallest_of_a_window_is_scattered_to():
    body = f"""%i = stablehlo.constant dense<1.0> : tensor<f32>
    %r = "stablehlo.select_and_scatter"(%a, %b, %i) <{{window_dimensions = array<i64: 2>,
      window_strides = array<i64: 2>}}> ({{
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %c = stablehlo.compare LT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
    }}, {{
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %s = stablehlo.add %x, %y : tensor<f32>
        stablehlo.return %s : tensor<f32>
    }}) : ({FOUR}, tensor<2xf32>, tensor<f32>) -> {FOUR}"""
    received = _run(body, FOUR, V, np.array([10.0, 20.0], np.float32))
    np.testing.assert_array_equal(received, [1, 11, 21, 1])


def test_a_scatter_by_any_computation():
    body = f"""%r = "stablehlo.scatter"(%a, %b, %c) <{{scatter_dimension_numbers = #stablehlo.scatter<
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> ({{
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %m = stablehlo.multiply %y, %y : tensor<f32>
        %s = stablehlo.add %x, %m : tensor<f32>
        stablehlo.return %s : tensor<f32>
    }}) : ({FOUR}, tensor<2x1xi32>, tensor<2xf32>) -> {FOUR}"""
    received = _run(body, FOUR, V, np.array([[1], [3]], np.int32), np.array([3.0, 4.0], np.float32))
    np.testing.assert_array_equal(received, [3, 10, 2, 21])


def test_maps_apply_a_block_to_each_element():
    body = f"""%r = "stablehlo.map"(%a, %a) <{{dimensions = array<i64: 0, 1>}}> ({{
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %m = stablehlo.multiply %x, %y : tensor<f32>
        stablehlo.return %m : tensor<f32>
    }}) : ({TWO_BY_THREE}, {TWO_BY_THREE}) -> {TWO_BY_THREE}"""
    np.testing.assert_array_equal(_run(body, TWO_BY_THREE, A), A * A)


def test_calls_composites_and_barriers():
    before = f"""func.func private @double(%x: {FOUR}) -> {FOUR} {{
      %y = stablehlo.add %x, %x : {FOUR}
      return %y : {FOUR}
    }}"""
    body = f"""%0 = func.call @double(%a) : ({FOUR}) -> {FOUR}
    %1 = stablehlo.composite "my.op" %0 {{decomposition = @double}} : ({FOUR}) -> {FOUR}
    %r = stablehlo.optimization_barrier %1 : {FOUR}"""
    np.testing.assert_array_equal(_run(body, FOUR, V, before=before), 4 * V)


def test_branches_use_outer_values():
    body = f"""%i = stablehlo.constant dense<7> : tensor<i32>
    %r = "stablehlo.case"(%i) ({{
      stablehlo.return %a : {FOUR}
    }}, {{
      %n = stablehlo.negate %a : {FOUR}
      stablehlo.return %n : {FOUR}
    }}) : (tensor<i32>) -> {FOUR}"""
    np.testing.assert_array_equal(_run(body, FOUR, V), -V)


DYNAMIC = {
    "dynamic_reshape": (
        "%s = stablehlo.constant dense<[3, 2]> : tensor<2xi32>\n"
        f"%r = stablehlo.dynamic_reshape %a, %s : ({TWO_BY_THREE}, tensor<2xi32>) -> tensor<3x2xf32>",
        "tensor<3x2xf32>",
        A.reshape(3, 2),
    ),
    "dynamic_broadcast_in_dim": (
        "%s = stablehlo.constant dense<[2, 2, 3]> : tensor<3xi32>\n"
        f"%r = stablehlo.dynamic_broadcast_in_dim %a, %s, dims = [1, 2] "
        f": ({TWO_BY_THREE}, tensor<3xi32>) -> tensor<2x2x3xf32>",
        "tensor<2x2x3xf32>",
        np.stack([A, A]),
    ),
    "get_dimension_size": (
        f"%r = stablehlo.get_dimension_size %a, dim = 1 : ({TWO_BY_THREE}) -> tensor<i32>",
        "tensor<i32>",
        np.int32(3),
    ),
    "real_dynamic_slice": (
        "%s = stablehlo.constant dense<[0, 1]> : tensor<2xi32>\n%l = stablehlo.constant dense<[2, 3]> : tensor<2xi32>\n"
        "%t = stablehlo.constant dense<1> : tensor<2xi32>\n"
        f"%r = stablehlo.real_dynamic_slice %a, %s, %l, %t "
        f": ({TWO_BY_THREE}, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<2x2xf32>",
        "tensor<2x2xf32>",
        A[:, 1:],
    ),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic_operations_with_constant_sizes(name):
    body, result, expected = DYNAMIC[name]
    np.testing.assert_array_equal(_run(body, result, A), expected)


def test_a_size_from_data_is_refused():
    body = f"%r = stablehlo.set_dimension_size %a, %b, dim = 0 : ({FOUR}, tensor<i32>) -> {FOUR}"
    with pytest.raises(UnsupportedError, match="do not depend on data"):
        _run(body, FOUR, V, np.asarray(2, np.int32))


def test_the_upper_cholesky_factor():
    matrix = np.array([[4.0, 2.0], [2.0, 3.0]], np.float32)
    upper = _run("%r = stablehlo.cholesky %a, lower = false : tensor<2x2xf32>", "tensor<2x2xf32>", matrix)
    np.testing.assert_allclose(np.triu(upper).T @ np.triu(upper), matrix, rtol=1e-6)


def test_top_k_as_one_operation():
    body = f"%v, %r = chlo.top_k(%a, k = 2) : {FOUR} -> (tensor<2xf32>, tensor<2xi32>)"
    assert _run(body, "tensor<2xi32>", V).tolist() == [3, 0]


def test_a_convolution_with_a_reversed_window():
    body = """%r = stablehlo.convolution(%a, %b) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0],
      window = {reverse = [true]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
      : (tensor<1x1x4xf32>, tensor<1x1x2xf32>) -> tensor<1x1x3xf32>"""
    kernel = np.array([1.0, 10.0], np.float32)
    received = _run(body, "tensor<1x1x3xf32>", V.reshape(1, 1, 4), kernel.reshape(1, 1, 2))
    np.testing.assert_array_equal(received[0, 0], np.convolve(V, kernel, "valid"))


def test_batch_normalisation_for_inference():
    row = np.array([1.0, 2.0, 3.0], np.float32)
    body = f"""%r = "stablehlo.batch_norm_inference"(%a, %b, %c, %d, %e) <{{
        epsilon = 0.5 : f32, feature_index = 1 : i64}}>
      : ({TWO_BY_THREE}, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> {TWO_BY_THREE}"""
    received = _run(body, TWO_BY_THREE, A, row, row + 1, row + 2, row + 3)
    np.testing.assert_allclose(received, (A - row - 2) / np.sqrt(row + 3.5) * row + row + 1, rtol=1e-6)
