"""Getting, setting, resetting and printing the stages of all kinds of models, with the refusals of the reference."""

import logging

import keras
import pytest

from openipu.tensorflow.keras import ipu
from openipu.tensorflow.keras.stages import PipelineStage, check_pipelinable, is_pipelined, prepare, stage_count
from openipu.tensorflow.keras.stages.create import stages_of

layers = keras.layers


def functional():
    x = keras.Input((4,), name="x")
    a = layers.Dense(4, name="a")(x)
    b = layers.Dense(4, name="b")(a)
    c = layers.Add(name="c")([a, b])
    return keras.Model(x, layers.Dense(1, name="d")(c), name="graph")


def sequential():
    return keras.Sequential([keras.Input((4,)), *(layers.Dense(4, name=n) for n in "abc")], name="row")


class Subclass(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.a, self.b = layers.Dense(4, name="a"), layers.Dense(2, name="b")

    def call(self, x):
        return self.b(self.a(x))


def assign(model, stages):
    assignment = model.get_pipeline_stage_assignment()
    for item, stage in zip(assignment, stages, strict=True):
        item.pipeline_stage = stage
    model.set_pipeline_stage_assignment(assignment)
    return assignment


def test_functional_models_are_assigned_in_post_order(scope):
    model = functional()
    fresh = model.get_pipeline_stage_assignment()
    assert [a.layer.name for a in fresh] == ["a", "b", "c", "d"]
    assert {type(a) for a in fresh} == {ipu.FunctionalLayerPipelineStageAssignment}
    assert [a.pipeline_stage for a in fresh] == [None] * 4 and not is_pipelined(model)
    assert [layer.name for layer in fresh[2].inbound_layers] == ["a", "b"]
    assign(model, [0, 0, 1, 2])
    assert stages_of(model.get_pipeline_stage_assignment()) == [0, 0, 1, 2] and stage_count(model) == 3
    model.reset_pipeline_stage_assignment()
    assert not is_pipelined(model)


def test_getting_twice_gives_the_same_objects_in_another_list(scope):
    model = functional()
    assign(model, [0, 0, 1, 1])
    one, two = model.get_pipeline_stage_assignment(), model.get_pipeline_stage_assignment()
    assert one is not two and all(a is b for a, b in zip(one, two, strict=True))


def test_assignments_say_what_they_are(scope):
    model, row = functional(), sequential()
    assert str(assign(model, [0, 0, 1, 1])[2]) == "Layer: c (node index 0) is assigned to pipeline stage: 1"
    row.set_pipeline_stage_assignment([0, 0, 1])
    assert str(row.get_pipeline_stage_assignment()[2]) == "Layer: c is assigned to pipeline stage: 1"


def test_setting_stages_forgets_compiled_programs(scope):
    model = functional()
    model._ipu.compiled["anything"] = 1
    assign(model, [0, 0, 1, 1])
    assert not model._ipu.compiled


def test_sequential_models_take_numbers_or_objects(scope):
    model = sequential()
    model.set_pipeline_stage_assignment([0, 1, 1])
    assert [a.pipeline_stage for a in model.get_pipeline_stage_assignment()] == [0, 1, 1]
    assert {type(a) for a in model.get_pipeline_stage_assignment()} == {ipu.SequentialLayerPipelineStageAssignment}
    assign(model, [0, 0, 1])
    assert stage_count(model) == 2


def test_a_sequential_model_without_shapes_can_be_assigned(scope):
    model = keras.Sequential([layers.Dense(3), layers.Dense(2)])
    model.set_pipeline_stage_assignment([0, 1])
    assert is_pipelined(model) and stage_count(model) == 2


@pytest.mark.parametrize("change", ["add", "pop"])
def test_changing_a_sequential_model_makes_its_stages_invalid(scope, caplog, change):
    model = sequential()
    model.set_pipeline_stage_assignment([0, 1, 1])
    with caplog.at_level(logging.INFO, "openipu.keras"):
        if change == "add":
            model.add(layers.Dense(2))
        else:
            assert model.pop().name == "c"
    assert "invalid" in caplog.text
    with pytest.raises(RuntimeError, match=r"no longer valid"):
        stage_count(model)
    model.set_pipeline_stage_assignment([0] * (len(model.layers) - 1) + [1])
    assert stage_count(model) == 2


def test_subclassed_models_must_be_built_first(scope):
    model = Subclass(name="mine")
    with pytest.raises(
        RuntimeError, match=r"Cannot get pipeline stage assignments for model `mine` which has not been"
    ):
        model.get_pipeline_stage_assignment()
    with pytest.raises(
        RuntimeError, match=r"Cannot set pipeline stage assignments for model `mine` which has not been"
    ):
        model.set_pipeline_stage_assignment([])
    model.build((None, 3))
    assert len(model.weights) == 4
    assert {type(a) for a in model.get_pipeline_stage_assignment()} == {ipu.ModelLayerPipelineStageAssignment}
    assign(model, [0, 1])
    assert stage_count(model) == 2


def test_subclassed_models_can_be_built_with_inputs(scope):
    class Tokens(keras.Model):
        def __init__(self):
            super().__init__()
            self.embed, self.dense = IntegersOnly(), layers.Dense(2)

        def call(self, x):
            return self.dense(self.embed(x))

    class IntegersOnly(layers.Layer):
        def call(self, x):
            if "int" not in str(x.dtype):
                raise TypeError("integers, please")
            return keras.ops.one_hot(x, 5)

        def compute_output_spec(self, x):
            if "int" not in str(x.dtype):
                raise TypeError("integers, please")
            return keras.KerasTensor((*x.shape, 5))

    with pytest.raises(ValueError, match=r"You cannot pass a plain shape to your model's `build` function"):
        Tokens().build((None, 7))
    model = Tokens()
    model.build(keras.Input((7,), dtype="int32"))
    assert len(model.get_pipeline_stage_assignment()) == 2


def test_data_that_does_not_fit_the_stages_is_refused(scope):
    model = Subclass(name="mine")
    model.build((None, 3))
    assign(model, [0, 1])
    prepare(model, keras.KerasTensor((8, 3)))
    with pytest.raises(RuntimeError, match=r"The pipeline stage assignments for model mine are no longer valid: "):
        prepare(model, keras.KerasTensor((8, 4)))


def test_stages_survive_a_build_with_the_shape_of_one_example(scope):
    model = Subclass()
    model.build((28, 3))
    assign(model, [0, 1])
    prepare(model, keras.KerasTensor((8, 28, 3)))
    assignments = model.get_pipeline_stage_assignment()
    assert [(a.layer, a.node_index, a.pipeline_stage) for a in assignments] == [
        (layer, 0, stage) for stage, layer in enumerate(model.layers)
    ]
    with pytest.raises(RuntimeError, match=r"no longer valid"):
        prepare(model, keras.KerasTensor((8, 4, 28, 3)))


def test_a_call_that_cannot_be_traced_says_why(scope):
    import tensorflow as tf

    class Raw(keras.Model):
        def call(self, x):
            return tf.nn.relu(x)

    model = Raw()
    model.build((None, 3))
    with pytest.raises(NotImplementedError, match=r"cannot be traced on symbolic inputs"):
        model.get_pipeline_stage_assignment()


def refusals():
    yield "a tuple", lambda a: tuple(a), "`pipeline_stage_assignment` needs to be a list."
    yield "too short", lambda a: a[:-1], r"\(3\) does not match the number of layers in the graph \(4\). Each layer"
    yield "numbers", lambda a: [0, 0, 1, 1], "for layer a in graph must be an instance of `FunctionalLayer.*type int"
    yield "reversed", lambda a: a[::-1], "does not match the post-order generated from the graph"


@pytest.mark.parametrize(("change", "message"), [pytest.param(c, m, id=i) for i, c, m in refusals()])
def test_lists_that_do_not_fit_are_refused(scope, change, message):
    model = functional()
    assignment = model.get_pipeline_stage_assignment()
    for item in assignment:
        item.pipeline_stage = 0
    with pytest.raises(ValueError, match=message):
        model.set_pipeline_stage_assignment(change(assignment))


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([0, None, 1, 1], "Layer b with node_index 0 has not been assigned a pipeline stage in"),
        ([0, 1, 0, 1], "Layer c in pipeline stage 0 has a dependency from a pipeline stage which has not yet been"),
        ([0, -1, 0, 1], "must be an integer, counted from 0. Received: -1"),
    ],
)
def test_stages_that_cannot_run_are_refused(scope, stages, message):
    with pytest.raises(ValueError, match=message):
        assign(functional(), stages)


def test_a_gap_is_refused_when_it_matters(scope):
    model = functional()
    assign(model, [0, 0, 3, 3])
    with pytest.raises(RuntimeError, match=r"at lease one layer.*is stage 3, however the preceeding stages \[1, 2\]"):
        stage_count(model)


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (
            [1, 1, 1],
            "first layer in a pipelined sequential model needs.*0th pipeline stage, however it was assigned to 1",
        ),
        ([0, 2, 2], "Layer b has been assigned to pipeline stage 2, however the previous layer a .* pipeline stage 0"),
        ([0, 1, 0], "Layer c has been assigned to pipeline stage 0, however the previous layer b .* pipeline stage 1"),
        ([0, 1], r"\(2\) does not match the number of layers in the graph \(3\)"),
        ([0, 0, "1"], "for layer c in row must be an instance of `SequentialLayer.*of type str"),
    ],
)
def test_sequential_stages_go_up_one_by_one(scope, stages, message):
    with pytest.raises(ValueError, match=message):
        sequential().set_pipeline_stage_assignment(stages)


def test_sequential_layers_must_be_in_place_and_have_a_stage(scope):
    model = sequential()
    assignment = model.get_pipeline_stage_assignment()
    with pytest.raises(ValueError, match=r"Layer a has not been assigned a pipeline stage."):
        model.set_pipeline_stage_assignment(assignment)
    for item in assignment:
        item.pipeline_stage = 0
    with pytest.raises(ValueError, match=r"The provided assignment at index 0 is for layer c"):
        model.set_pipeline_stage_assignment(assignment[::-1])


def test_nested_models_have_nested_assignments(scope):
    inner = sequential()
    x = keras.Input((4,))
    model = keras.Model(x, layers.Dense(1, name="out")(inner(inner(x))), name="outer")
    first, second, last = model.get_pipeline_stage_assignment()
    assert type(first) is ipu.FunctionalNestedModelPipelineStageAssignment and first.nested_model is inner
    assert (first.node_index, second.node_index) == (0, 1)
    assert {type(a) for a in first.pipeline_stage_assignments} == {ipu.SequentialLayerPipelineStageAssignment}
    stages = [0, 0, 0, 0, 1, 1, 1]
    inside = [*first.pipeline_stage_assignments, *second.pipeline_stage_assignments, last]
    for item, stage in zip(inside, stages, strict=True):
        item.pipeline_stage = stage
    model.set_pipeline_stage_assignment([first, second, last])
    assert stages_of(model.get_pipeline_stage_assignment()) == stages
    with pytest.raises(ValueError, match=r"for nested model row in outer must be an instance of `FunctionalNested"):
        model.set_pipeline_stage_assignment([last, second, last])


def test_sequential_models_hold_models(scope):
    inner = functional()
    model = keras.Sequential([keras.Input((4,)), inner, layers.Dense(1)], name="outer")
    model.set_pipeline_stage_assignment([0, 1])
    nested, last = model.get_pipeline_stage_assignment()
    assert type(nested) is ipu.SequentialNestedModelPipelineStageAssignment
    assert stages_of([nested]) == [0] * 4
    last.pipeline_stage = 0
    nested.pipeline_stage_assignments[3].pipeline_stage = 1
    with pytest.raises(ValueError, match=r"in pipeline stage 0 has a dependency"):
        model.set_pipeline_stage_assignment([nested, last])


def test_the_summary_of_a_functional_model(scope):
    model, lines = functional(), []
    assign(model, [0, 0, 1, 1])
    model.print_pipeline_stage_assignment_summary(print_fn=lines.append)
    assert lines[0] == 'Model: "graph"'
    assert lines[1] == "_" * 89 and lines[3] == "=" * 89 and lines[-1] == "=" * 89
    assert lines[2] == "Layer (type) (node index)".ljust(35) + "Input Layers".ljust(36) + "Pipeline Stage".ljust(18)
    assert lines[4].split() == ["a", "(Dense)", "(0)", "x", "0"]
    assert lines[8].split() == ["c", "(Add)", "(0)", "a", "1"] and lines[9].split() == ["b"]
    assert lines[5] == "_" * 89 and {len(line) for line in lines[1:]} == {89}


def test_the_summary_of_a_sequential_model_with_another_inside(scope, capsys):
    model = keras.Sequential([keras.Input((4,)), sequential(), layers.Dense(1, name="out")], name="outer")
    model.set_pipeline_stage_assignment([0, 1])
    model.print_pipeline_stage_assignment_summary()
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "_" * 60 and lines[2] == "Layer (type)".ljust(30) + "Pipeline Stage".ljust(30)
    assert lines[4] == 'Nested Model: "row"' and lines[5] == "-" * 60
    assert lines[6].split() == ["a", "(Dense)", "0"] and lines[-2].split() == ["out", "(Dense)", "1"]


def test_pipelined_models_may_not_override_what_runs_them(scope):
    class OwnStep(keras.Model):
        def test_step(self, data):
            return super().test_step(data)

        def call(self, x):
            with PipelineStage(0):
                return x * 2.0

    class OwnCall(keras.Sequential):
        def call(self, x, training=None, mask=None):
            return super().call(x, training, mask)

    model = OwnStep(name="mine")
    check_pipelinable(model, "test")
    model.build((None, 3))
    check_pipelinable(model, "train")
    with pytest.raises(
        RuntimeError, match=r"`test_step` for the model mine has been overridden.*for pipelined Keras mo"
    ):
        check_pipelinable(model, "test")
    row = OwnCall([keras.Input((4,)), layers.Dense(3), layers.Dense(3)], name="mine")
    check_pipelinable(row, "train")
    row.set_pipeline_stage_assignment([0, 1])
    with pytest.raises(RuntimeError, match=r"`call` for the model mine.*for pipelined Keras Sequential models"):
        check_pipelinable(row, "train")


def test_a_model_without_call_is_refused(scope):
    class Empty(keras.Model):
        pass

    with pytest.raises(NotImplementedError, match=r"The function `call` for the model empty has not been implemented"):
        check_pipelinable(Empty(name="empty"), "train")


def test_stage_scopes_in_the_wrong_order_are_refused_before_running(scope):
    x = keras.Input((4,))
    with PipelineStage(1):
        y = layers.Dense(3)(x)
    with PipelineStage(0):
        y = layers.Dense(2, name="early")(y)
    model = keras.Model(x, y)
    with pytest.raises(ValueError, match=r"Layer early in pipeline stage 0 has a dependency"):
        check_pipelinable(model, "train")
