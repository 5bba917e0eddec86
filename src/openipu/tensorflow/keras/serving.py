"""Keras models for serving, as SavedModels that stock TensorFlow loads."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from openipu.tensorflow.serving.export import Around, export


def export_model(
    model: Any,
    export_dir: str,
    batch_size: int | None,
    output_names: str | Sequence[str] | None,
    around: Around,
    purge_export_dir: bool,
) -> Any:
    """Save a model that was made in the scope of a strategy; arguments as of `export_for_ipu_serving`."""
    structure, specs = _inputs(model, batch_size)

    def step(*tensors: tf.Tensor) -> Any:
        return model(tf.nest.pack_sequence_as(structure, tensors), training=False)

    return export(step, specs, export_dir, output_names, around, purge_export_dir)


def _inputs(model: Any, batch_size: int | None) -> tuple[Any, list[tf.TensorSpec]]:
    """The structure of a model's inputs, and their specs."""
    keras = model._ipu_keras
    graph = keras.graph_model(model)
    if graph is not None:
        structure = graph.input
        found = [(*keras.shape_and_dtype(tensor), _name(tensor, i)) for i, tensor in enumerate(graph.inputs)]
    else:
        structure = keras.built_shape(model)
        if structure is None:
            raise RuntimeError(
                "Cannot get model's input signature. Call the model on data, or `model.build(input_shape)`, before it "
                "is exported."
            )
        if isinstance(structure, list | tuple) and all(size is None or isinstance(size, int) for size in structure):
            structure = tf.TensorShape(structure)
        dtype = getattr(model, "compute_dtype", "float32") or "float32"
        flat = tf.nest.flatten(structure)
        found = [
            (tuple(s.shape), s.dtype.name, s.name or f"input_{i + 1}")
            if isinstance(s, tf.TensorSpec)
            else (tuple(tf.TensorShape(s)), dtype, f"input_{i + 1}")
            for i, s in enumerate(flat)
        ]
    return structure, [_spec(shape, dtype, name, batch_size) for shape, dtype, name in found]


def _spec(shape: tuple[int | None, ...], dtype: str, name: str, batch_size: int | None) -> tf.TensorSpec:
    if shape and shape[0] is None and batch_size is not None:
        shape = (batch_size, *shape[1:])
    if any(size is None for size in shape):
        raise ValueError(
            "Not all dimensions of inputs can be determined. Please specify batch size in model's input layer or "
            "specify `batch_size` parameter when exporting model."
        )
    return tf.TensorSpec(shape, dtype, name)


def _name(tensor: Any, place: int) -> str:
    return (getattr(tensor, "name", None) or f"input_{place + 1}").partition(":")[0].replace("/", "_")
