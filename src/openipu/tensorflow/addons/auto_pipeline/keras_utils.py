"""What the tools ask of Keras models: shapes and sizes of tensors, and which layers are alike."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from openipu.tensorflow.keras.stages import alone
from openipu.tensorflow.keras.stages.auto import bytes_of, row_of, static_spec
from openipu.tensorflow.keras.stages.tracing import graph_of
from openipu.tensorflow.keras.versions import version_of


def prepend_batchsize(shape: Any, batch_size: int) -> tuple[int | None, ...]:
    """The shape of a batch.

    Args:
      shape: of one sample.
      batch_size: samples.
    """
    return (batch_size, *tf.TensorShape(shape).as_list())


def tf_tensor_size(x: Any, batch_size: int) -> int:
    """Bytes of a tensor.

    Args:
      x: a tensor, its spec, or a symbolic one of Keras.
      batch_size: what stands for an unknown first dimension.
    """
    spec = static_spec(_Plain(), x, batch_size, "")  # type: ignore[arg-type]
    return bytes_of(spec)


def tf_nested_map_structure_tensor(tensor_func: Callable[[Any], Any], struct: Any) -> Any:
    """Apply a function to the tensors in a structure; all else stays as it is."""
    return tf.nest.map_structure(lambda leaf: tensor_func(leaf) if _is_tensor(leaf) else leaf, struct)


def tf_nested_map_structure_all_tensor(tensor_func: Callable[[Any], Any], struct: Any) -> Any:
    """Apply a function to the tensors in a structure, which must have nothing else in it."""
    for leaf in tf.nest.flatten(struct):
        if not _is_tensor(leaf):
            raise ValueError(
                f"Expected a structure of tensors only. Received: {leaf!r} in it. Use "
                "tf_nested_map_structure_tensor to leave such values as they are."
            )
    return tf.nest.map_structure(tensor_func, struct)


def parse_model_intermediate(model: Any, batch_size: int) -> list[int]:
    """Bytes that a cut after each layer but the last would send to the next IPU.

    Args:
      model: a built model, made in the scope of an IPU strategy.
      batch_size: the micro-batch.
    """
    row = row_of(graph_of(model))
    return [row.crossing(position, batch_size) for position in range(1, len(row.leaves))]


def get_assignment_layer_type(assignment: Any, batch_size: int) -> str:
    """A name for what a layer computes: the same for calls of the same class, configuration and shapes.

    Args:
      assignment: one entry of `get_pipeline_stage_assignment`, no nested model that is cut itself.
      batch_size: the micro-batch.
    """
    node, layer = node_of(assignment), layer_of(assignment)
    version = version_of(layer)
    arguments = version.map_structure(
        lambda leaf: "" if version.is_symbolic(leaf) else repr(leaf), version.arguments(node)
    )
    parts = [repr(alone.specs_of(node, batch_size)), repr(arguments), _configuration(layer)]
    # Bare operations have no types of their own.
    parts.append(str(getattr(layer, "dtype_policy", "")))
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return f"{type(layer).__name__}_{digest[:12]}"


def layer_of(assignment: Any) -> Any:
    """The layer, or nested model, of an assignment."""
    return assignment.nested_model if assignment.is_nested_model else assignment.layer


def node_of(assignment: Any) -> Any:
    """Keras' record of the call that an assignment is about."""
    layer = layer_of(assignment)
    nodes: Sequence[Any] = version_of(layer).inbound_nodes(layer)
    if not nodes:
        raise RuntimeError(
            f"Layer {layer.name} has not been called, so its shapes are unknown. Build the model first: begin it with "
            "`keras.Input`, or call `model.build` with the shape of its inputs."
        )
    return nodes[getattr(assignment, "node_index", 0)]


class _Plain:
    """What `static_spec` asks of a Keras, for tensors of any."""

    @staticmethod
    def shape_and_dtype(tensor: Any) -> tuple[tuple[int | None, ...], str]:
        return tuple(tf.TensorShape(tensor.shape).as_list()), tf.as_dtype(tensor.dtype).name


def _is_tensor(leaf: Any) -> bool:
    # Both Kerases call their symbolic tensors so; TensorFlow does not know those of Keras 3.
    return tf.is_tensor(leaf) or isinstance(leaf, tf.TensorSpec) or type(leaf).__name__ == "KerasTensor"


def _configuration(layer: Any) -> str:
    try:
        config = layer.get_config()
    except (NotImplementedError, AttributeError, TypeError):
        # A class of the user's own that does not say: like nothing but itself.
        return layer.name
    return repr({key: value for key, value in sorted(config.items()) if key != "name"})
