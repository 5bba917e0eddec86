"""How Keras 2 runs a model part by part: the same functions as in `keras3_parts`."""

import tensorflow as tf

from openipu.tensorflow.keras.versions.keras2 import graph_model, is_symbolic

Variable = tf.Variable


def pack_outputs(model, flat):
    """Outputs in the structure that calling the Functional model gives."""
    return tf.nest.pack_sequence_as(model._nested_outputs, list(flat))


def constants(node):
    """What the node takes that is no symbolic tensor: numbers, variables."""
    return [value for value in tf.nest.flatten((node.call_args, node.call_kwargs)) if not is_symbolic(value)]


def mask(value):
    """The mask that travels with a tensor."""
    return getattr(value, "_keras_mask", None)


def set_mask(value, given):
    """Let a mask travel with a tensor."""
    value._keras_mask = given


def cast(value, dtype):
    """The value in another dtype, with its mask."""
    made = tf.cast(value, dtype)
    if mask(value) is not None:
        set_mask(made, mask(value))
    return made


def standardise(model, x):
    """The inputs of a model, flat, in the order, dtype and rank in which its graph takes them."""
    x = tf.nest.map_structure(tf.convert_to_tensor, x)
    holder = graph_model(model)
    if holder is None:
        x = model._maybe_cast_inputs(x)
        return tf.nest.flatten(x)
    flat = holder._flatten_to_reference_inputs(x)
    return [holder._conform_to_reference_input(v, ref_input=r) for v, r in zip(flat, holder.inputs, strict=True)]


def own_losses(layer):
    """Losses the layer added in its last call, those of layers inside it included."""
    # `_losses` are those of the symbolic call with which the graph was made.
    return [loss for inner in layer._flatten_layers() for loss in inner._eager_losses]


def clear_losses(layer):
    """Forget the losses of earlier calls."""
    layer._clear_losses()


def regularisers(layer):
    """The weight regularisation losses of a layer."""
    return [loss for inner in layer._flatten_layers() for loss in inner._callable_losses]
