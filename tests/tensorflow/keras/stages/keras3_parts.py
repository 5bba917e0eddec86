"""How Keras 3 runs a model part by part: what the tests need to do it, beyond what openipu needs."""

from keras.src import backend, tree

from openipu.tensorflow.keras.versions.keras3 import Functional, graph_model, is_layer

Variable = backend.Variable


def pack_outputs(model, flat):
    """Outputs in the structure that calling the Functional model gives."""
    packed = tree.pack_sequence_as(model._outputs_struct, list(flat))
    return packed[0] if isinstance(packed, (list, tuple)) and len(packed) == 1 else packed


def constants(node):
    """What the node takes that is no symbolic tensor: numbers, variables."""
    flat = tree.flatten((node.arguments.args, node.arguments.kwargs))
    return [value for value in flat if not isinstance(value, backend.KerasTensor)]


def mask(value):
    """The mask that travels with a tensor."""
    return backend.get_keras_mask(value)


def set_mask(value, given):
    """Let a mask travel with a tensor."""
    backend.set_keras_mask(value, given)


def cast(value, dtype):
    """The value in another dtype, with its mask."""
    made = backend.cast(value, dtype)
    if mask(value) is not None:
        set_mask(made, mask(value))
    return made


def standardise(model, x):
    """The inputs of a model, flat, in the order, dtype and rank in which its graph takes them."""
    if not isinstance(model, Functional):
        x = tree.map_structure(lambda v: model.dtype_policy.convert_input(v, model.autocast, model.input_dtype), x)
    holder = graph_model(model)
    return tree.flatten(x) if holder is None else holder._standardize_inputs(x)


def own_losses(layer):
    """Losses the layer added in its last call, those of layers inside it included."""
    return [loss for inner in layer._flatten_layers() for loss in inner._get_own_losses()] if is_layer(layer) else []


def clear_losses(layer):
    """Forget the losses of earlier calls."""
    if is_layer(layer):
        layer._clear_losses()


def regularisers(layer):
    """The weight regularisation losses of a layer."""
    weights = layer.trainable_weights if is_layer(layer) else []
    return [lambda v=v: v.regularizer(v) for v in weights if v.regularizer is not None]
