"""The stages of a model, run one after the other, compute exactly what the model computes."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from openipu.tensorflow.keras.stages import stage_of_scope
from openipu.tensorflow.keras.stages.create import from_stages
from openipu.tensorflow.keras.stages.tracing import graph_of
from tests.tensorflow.keras.stages.one_by_one import stage_functions, stage_variables

# Keras says so of nested models with masks, in a pipeline and without one.
pytestmark = pytest.mark.filterwarnings("ignore:Layer .* was passed an input with a mask:UserWarning")

layers = keras.layers


def sequential():
    model = keras.Sequential(
        [
            keras.Input((6, 6, 2)),
            layers.Conv2D(4, 3),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Dropout(0.5),
            layers.Flatten(),
            layers.Dense(3),
        ]
    )
    return model, [0, 0, 0, 1, 1, 2]


def skip_connections():
    a, b = keras.Input((4,), name="a"), keras.Input((3,), name="b")
    x = layers.Dense(4)(a)
    y = layers.Dense(4)(x)
    z = layers.Add()([x, y]) * 2.0
    w = layers.Concatenate()([layers.Dropout(0.3)(z), b, a])
    # The first output is ready long before the last stage.
    return keras.Model({"a": a, "b": b}, [x, layers.Dense(2)(w)]), [0, 1, 1, 1, 2, 3, 3]


def shared_layers():
    x = keras.Input((4,))
    shared = layers.Dense(4, activity_regularizer="l2", kernel_regularizer="l1")
    y = shared(layers.Dropout(0.2)(shared(x)))
    return keras.Model(x, y), [0, 0, 1]


def nested(inner_kind="functional"):
    if inner_kind == "functional":
        i = keras.Input((4,), dtype="float16")
        inner = keras.Model(i, layers.Dense(4)(layers.Dropout(0.4)(layers.Dense(4, dtype="float32")(i))))
    else:
        inner = keras.Sequential([layers.Dense(4), layers.Dropout(0.4), layers.Dense(4)])
    x = keras.Input((4,))
    y = inner(inner(x))
    return keras.Model(x, [y, layers.Dense(1)(y)]), [0, 0, 1, 1, 2, 2, 3]


def nested_sequential():
    return nested("sequential")


def masked():
    i = keras.Input((5, 4))
    inner = keras.Model(i, layers.LSTM(4)(layers.Dense(4)(i)))
    x = keras.Input((5,), dtype="int32")
    y = inner(layers.Embedding(7, 4, mask_zero=True)(x))
    return keras.Model(x, layers.Dense(2)(y)), [0, 0, 0, 1, 2]


def recurrent():
    x = keras.Input((5, 4))
    y, h, c = layers.LSTM(3, return_sequences=True, return_state=True)(x)
    y = layers.GRU(3, return_sequences=True)(y, initial_state=h)
    y = layers.MultiHeadAttention(2, 4)(y, y)
    return keras.Model(x, {"y": y, "c": c}), [0, 1, 2]


class Subclass(keras.Model):
    def __init__(self):
        super().__init__()
        self.first = layers.Dense(4)
        self.drop = layers.Dropout(0.5)
        self.norm = layers.BatchNormalization()
        self.block = keras.Sequential([layers.Dense(4), layers.Dropout(0.5)])
        self.last = layers.Dense(2)
        self.scale = self.add_weight(shape=(4,), initializer="ones")

    def call(self, x, training=False):
        y = self.drop(self.first(x), training=training)
        y = self.norm(y * self.scale, training=training)
        y = self.block(y, training=training)
        return {"result": self.last(y), "hidden": y}


def subclass():
    model = Subclass()
    model.build((None, 4))
    return model, [0, 0, 1, 1, 1, 2, 2]


def nested_subclass():
    inner = Subclass()
    x = keras.Input((4,))
    y = inner(layers.Dense(4)(x))
    return keras.Model(x, layers.Dense(1)(y["result"])), [0, 0, 0, 1, 1, 1, 2, 2, 2]


def deferred():
    model = keras.Sequential([layers.Dense(4), keras.Sequential([layers.Dense(3), layers.ReLU()]), layers.Dense(2)])
    model.build((None, 4))
    return model, [0, 0, 1, 1]


CASES = [
    sequential, skip_connections, shared_layers, nested, nested_sequential, masked, recurrent, subclass,
    nested_subclass, deferred,
]  # fmt: skip


def make(case):
    keras.utils.set_random_seed(3)
    model, stages = case()
    model._ipu.forget()
    graph = graph_of(model)
    model.set_pipeline_stage_assignment(from_stages(graph, stages))
    rng = np.random.default_rng(0)

    def sample(tensor):
        shape = [d or 8 for d in tensor.shape]
        return rng.integers(0, 4, shape).astype("int32") if "int" in tensor.dtype else rng.random(shape, "float32")

    if len(graph.inputs) > 1:
        return model, {t.name: sample(t) for t in graph.inputs}
    return model, sample(graph.inputs[0])


def state(model):
    return [v.numpy().copy() for v in model.variables]


@pytest.mark.parametrize("training", [True, False, None])
@pytest.mark.parametrize("case", CASES)
def test_all_stages_together_are_the_model(scope, case, training):
    model, x = make(case)
    staged = stage_functions(model, training)
    assert len(staged.stages) == max(s for s in case()[1]) + 1
    before = state(model)
    expected = model(x, training=training)
    expected_losses, after = [float(v) for v in model.losses], state(model)
    for variable, value in zip(model.variables, before, strict=True):
        variable.assign(value)

    values, losses = staged.enter(x), []
    for stage in staged.stages:
        assert len(values) == len(stage.takes) + len(stage.takes_masks)
        values, added = stage.run(values)
        losses += [float(v) for v in added]
    received = staged.leave(values)

    tf.nest.assert_same_structure(expected, received)
    for one, other in zip(tf.nest.flatten(expected), tf.nest.flatten(received), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(sorted(losses), sorted(expected_losses), rtol=1e-6)
    # Seeds advance and statistics move as in the model.
    for one, other in zip(after, state(model), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("case", CASES)
def test_a_stage_uses_only_its_own_variables(scope, case):
    model, x = make(case)
    staged = stage_functions(model, True)
    values = staged.enter(x)
    seen = set()
    for stage, variables in zip(staged.stages, stage_variables(model), strict=True):
        specs = [tf.TensorSpec(v.shape, v.dtype) for v in values]
        traced = tf.function(lambda *v: stage(v), autograph=False).get_concrete_function(*specs)
        own = {id(v.value) for v in variables}
        used = {id(v) for v in traced.graph.variables}
        assert used <= own
        seen |= own
        values = stage(values)
    assert seen == {id(v.value) for v in model.variables}


@pytest.mark.parametrize("case", [sequential, skip_connections, nested, nested_sequential, masked, subclass])
def test_operations_are_found_by_their_scope(scope, case):
    model, x = make(case)
    stage = stage_of_scope(model)
    by_variable = {}
    for index, variables in enumerate(stage_variables(model)):
        for variable in variables:
            by_variable.setdefault(id(variable.value), set()).add(index)

    def step(x):
        with tf.GradientTape() as tape:
            loss = sum(tf.reduce_sum(tf.cast(o, "float32") ** 2) for o in tf.nest.flatten(model(x, training=True)))
        return tape.gradient(loss, [v.value for v in model.trainable_weights])

    specs = tf.nest.map_structure(lambda v: tf.TensorSpec(v.shape, v.dtype), x)
    graph = tf.function(step, autograph=False).get_concrete_function(specs).graph
    handles = {id(handle): index for handle, index in _handles(graph, by_variable)}
    found = 0
    for operation in graph.get_operations():
        for tensor in operation.inputs:
            if id(tensor) in handles and model.name in operation.name:
                where = stage(operation.name)
                # An operation of the model itself, not of a layer, has no stage.
                if where is not None:
                    assert where in handles[id(tensor)], operation.name
                    found += 1
    assert found > 3
    gradients = [o.name for o in graph.get_operations() if o.name.startswith(f"gradient_tape/{model.name}")]
    assert gradients and sum(stage(name) is not None for name in gradients) > len(gradients) * 0.5
    assert stage("loss/sum") is None and stage(f"{model.name}_1/nobody/MatMul") is None


def _handles(graph, by_variable):
    for variable in graph.variables:
        if id(variable) in by_variable:
            for outside, inside in graph.captures:
                if outside is variable.handle:
                    yield inside, by_variable[id(variable)]


def test_calls_of_a_shared_layer_are_told_apart(scope):
    x = keras.Input((4,))
    shared, other = layers.Dense(4, name="sh"), layers.Dense(4, name="sh_1")
    model = keras.Model(x, other(shared(shared(x))), name="mm")
    model.set_pipeline_stage_assignment(from_stages(graph_of(model), [0, 1, 2]))
    graph = tf.function(model, autograph=False).get_concrete_function(tf.TensorSpec((2, 4))).graph
    stage = stage_of_scope(model)
    products = [o.name for o in graph.get_operations() if o.type == "MatMul"]
    assert [stage(name) for name in products] == [0, 1, 2], products
    assert stage("mm_7/sh_40/MatMul") == 0


def test_a_model_that_does_something_else_when_training_is_refused(scope):
    class Moody(keras.Model):
        def __init__(self):
            super().__init__()
            self.a, self.b = layers.ReLU(), layers.Softmax()

        def call(self, x, training=False):
            return self.b(self.a(x)) if training else self.a(x)

    model = Moody()
    model.build((None, 4))
    model.set_pipeline_stage_assignment(from_stages(graph_of(model), [0]))
    stage_functions(model, False)
    with pytest.raises(NotImplementedError, match="calls other layers with training=True than otherwise"):
        stage_functions(model, True)


def test_tracing_again_leaves_no_traces(scope):
    model, _ = make(subclass)
    before = [len(layer._inbound_nodes) for layer in model.layers]
    for _ in range(3):
        stage_functions(model, True)
    assert [len(layer._inbound_nodes) for layer in model.layers] == before
