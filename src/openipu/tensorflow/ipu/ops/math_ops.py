"""Matrix products in pieces, and sums of segments."""

from typing import Any

import tensorflow as tf

__all__ = ["segment_sum", "serialized_matmul"]

_DIMENSIONS = ("a_columns", "a_rows_b_columns", "b_rows")


def serialized_matmul(
    a: Any,
    b: Any,
    serialization_factor: int,
    serialization_dimension: str,
    transpose_a: bool = False,
    transpose_b: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """A matrix product that an IPU would compute in pieces to save memory; here it is computed in one.

    Args:
      a, b: the matrices, with batch axes before them.
      serialization_factor: number of pieces; must divide the dimension.
      serialization_dimension: what an IPU would split: "a_columns" the rows of the result, "b_rows" its columns,
        "a_rows_b_columns" the dimension that is summed over.
      transpose_a, transpose_b: whether to transpose first.
      name: of the operation.
    """
    a, b = tf.convert_to_tensor(a), tf.convert_to_tensor(b)
    if serialization_dimension not in _DIMENSIONS:
        expected = ", ".join(repr(known) for known in _DIMENSIONS)
        raise ValueError(f"Invalid serialization_dimension={serialization_dimension}, expected one of: {expected}.")
    for argument, matrix in (("a", a), ("b", b)):
        if matrix.shape.rank is None or matrix.shape.rank < 2:
            raise ValueError(f"{argument} must have a rank of at least 2. Received: shape {matrix.shape}.")
    rows, summed = (a.shape[-1], a.shape[-2]) if transpose_a else (a.shape[-2], a.shape[-1])
    columns = b.shape[-2] if transpose_b else b.shape[-1]
    size = {"a_columns": rows, "a_rows_b_columns": summed, "b_rows": columns}[serialization_dimension]
    if not isinstance(serialization_factor, int) or serialization_factor < 1 or (size or 0) % serialization_factor:
        raise ValueError(
            f"serialization_factor must be a positive integer that divides the size of {serialization_dimension!r}, "
            f"{size}. Received: serialization_factor={serialization_factor!r}."
        )
    return tf.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b, name=name)


def segment_sum(data: Any, segment_ids: Any, num_segments: int, name: str | None = None) -> tf.Tensor:
    """The sum of the rows of each segment.

    Args:
      data: the rows.
      segment_ids: the segment of each row, ascending, below `num_segments`.
      num_segments: rows of the result; segments without rows are zero.
      name: of the operation.
    """
    if isinstance(num_segments, int) and num_segments < 1:
        raise ValueError(f"num_segments must be a positive integer. Received: num_segments={num_segments}.")
    return tf.math.unsorted_segment_sum(data, segment_ids, num_segments, name=name)
