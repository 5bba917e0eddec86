"""ipu.scopes and ipu.sharding: what they mark, in graphs and in captured programs."""

import threading

import pytest
import tensorflow as tf

from openipu.errors import UnsupportedError
from openipu.tensorflow.capture import graph_attributes, placement
from openipu.tensorflow.ipu import scopes, sharding


def attributes_of(tensor):
    return graph_attributes.read(tensor.op)


@pytest.mark.parametrize(
    "name, ordinal",
    [
        ("/device:IPU:0", 0),
        ("/device:IPU:12", 12),
        ("/job:localhost/replica:0/task:0/device:IPU:1", 1),
        ("IPU:3", 3),
        ("/ipu:2", 2),
    ],
)
def test_ipu_scope_sets_the_current_device(name, ordinal):
    assert placement.current_device() is None
    with scopes.ipu_scope(name):
        assert placement.current_device() == ordinal
        with scopes.ipu_scope("/device:IPU:9"):
            assert placement.current_device() == 9
        assert placement.current_device() == ordinal
    assert placement.current_device() is None


@pytest.mark.parametrize("name", ["/device:GPU:0", "cpu", "/device:IPU", "/device:IPU:x", "", None, 0])
def test_ipu_scope_wants_the_name_of_an_ipu_device(name):
    with pytest.raises(ValueError, match=r"such as '/device:IPU:0'. Received"), scopes.ipu_scope(name):
        pass


def test_scopes_end_with_an_exception():
    with pytest.raises(KeyError), scopes.ipu_scope("/device:IPU:0"), scopes.ipu_shard(1):
        raise KeyError
    assert placement.current_device() is None
    assert placement.current_attributes() == {}


def test_placement_belongs_to_the_thread():
    seen = []
    with scopes.ipu_scope("/device:IPU:0"), scopes.ipu_shard(1):
        thread = threading.Thread(
            target=lambda: seen.append((placement.current_device(), placement.current_attributes()))
        )
        thread.start()
        thread.join()
    assert seen == [(None, {})]


def test_variables_in_an_ipu_scope_are_resource_variables():
    with tf.Graph().as_default():
        scope = tf.compat.v1.get_variable_scope()
        scope.set_use_resource(False)
        with scopes.ipu_scope("/device:IPU:0"):
            inside = tf.compat.v1.get_variable("inside", shape=[])
            with tf.compat.v1.variable_scope("deeper"):
                deeper = tf.compat.v1.get_variable("deeper", shape=[])
        outside = tf.compat.v1.get_variable("outside", shape=[])
    assert [hasattr(v, "handle") for v in (inside, deeper, outside)] == [True, True, False]


def test_jit_scope_marks_operations():
    with tf.Graph().as_default():
        with scopes.ipu_jit_scope(2):
            inside = tf.constant(1)
        outside = tf.constant(1)
    assert inside.op.get_attr("_XlaScope") == b"jit_scope_ipu_2"
    assert not sharding.has_attr(outside.op, "_XlaScope")


def test_shards_are_seen_on_operations():
    with tf.Graph().as_default():
        with scopes.ipu_shard(1):
            one = tf.constant(1)
            with scopes.ipu_shard([0, 2]):
                two = tf.constant(2)
            back = one + 1
        none = tf.constant(3)
    assert [sharding.get_sharding(t.op) for t in (one, two, back, none)] == [[1], [0, 2], [1], None]
    assert placement.current_attributes() == {}


@pytest.mark.parametrize("index", [-1, 1.5, "1", [], [0, -1], None, True, [True]])
def test_shard_indices_are_numbers_from_zero(index):
    with pytest.raises(ValueError, match=r"index must be"), scopes.ipu_shard(index):
        pass


def test_attributes_reach_the_captured_program():
    @tf.function(jit_compile=True)
    def step(x):
        with scopes.ipu_shard(3), scopes.partials_type(tf.float16):
            return tf.linalg.matmul(x, x)

    text = step.experimental_get_compiler_ir(tf.TensorSpec([2, 2]))(stage="stablehlo")
    assert 'openipu.partials_type = "float16", openipu.shard = "3"' in text


def test_scopes_around_a_function_are_inherited_when_asked_for():
    @tf.function(autograph=False)
    def step():
        with graph_attributes.inherited():
            inside = tf.constant(1.0)
        return inside, tf.constant(2.0)

    with scopes.ipu_shard(1):
        graph = step.get_concrete_function().graph
    values = [sharding.get_sharding(op) for op in graph.get_operations() if op.type == "Const"]
    assert values == [[1], None]


def test_frontend_attributes_nest_and_restore():
    with tf.Graph().as_default():
        with scopes.frontend_attribute("a", "1"):
            with scopes.frontend_attribute("a", "2"), scopes.frontend_attribute("b", "3"):
                inner = tf.constant(1)
            outer = tf.constant(1)
            with scopes.frontend_attribute("a", "4", restore_to="5"):
                pass
            restored = tf.constant(1)
        after = tf.constant(1)
    assert [attributes_of(t) for t in (inner, outer, restored, after)] == [
        {"a": "2", "b": "3"},
        {"a": "1"},
        {"a": "5"},
        {},
    ]
    assert placement.current_attributes() == {}


@pytest.mark.parametrize("name, value", [("a", 1), (1, "a")])
def test_frontend_attributes_are_text(name, value):
    with pytest.raises(TypeError, match=r"must be a string"), scopes.frontend_attribute(name, value):
        pass


def test_stochastic_rounding_marks_operations():
    with tf.Graph().as_default(), scopes.stochastic_rounding(True):
        on = tf.constant(1)
        with scopes.stochastic_rounding(False):
            off = tf.constant(1)
    assert attributes_of(on) == {"openipu.stochastic_rounding": "on"}
    assert attributes_of(off) == {"openipu.stochastic_rounding": "off"}
    with pytest.raises(TypeError, match=r"override=1"), scopes.stochastic_rounding(1):
        pass


@pytest.mark.parametrize("dtype", [tf.float16, "float32", tf.float32.as_numpy_dtype])
def test_partials_types(dtype):
    with scopes.partials_type(dtype):
        assert placement.current_attributes() == {"openipu.partials_type": tf.as_dtype(dtype).name}


@pytest.mark.parametrize("dtype", [tf.float64, "int32", "nonsense", None])
def test_other_partials_types_are_refused(dtype):
    with pytest.raises(ValueError, match=r"^Only support float16, float32, provided"), scopes.partials_type(dtype):
        pass


def test_outside_compilation_needs_a_compiled_program():
    with (
        pytest.raises(ValueError, match=r"^outside_compilation_scope is only allowed in XLA context$"),
        scopes.outside_compilation_scope(),
    ):
        pass


def test_outside_compilation_is_refused_in_functions_compiled_for_the_host():
    @tf.function(jit_compile=True, autograph=False)
    def step(x):
        with scopes.outside_compilation_scope("host"):
            return x

    with pytest.raises(UnsupportedError, match=r"name='host'.*programs for the IPU only"):
        step(1.0)


def test_dependencies_go_through_data_and_control():
    with tf.Graph().as_default():
        a = tf.constant(1, name="a")
        b = tf.constant(2, name="b")
        with tf.control_dependencies([b]):
            c = tf.identity(a, name="c")
        tf.identity(c, name="later")
        assert {op.name for op in sharding.dependencies([c])} == {"a", "b", "c"}
        assert sharding.dependencies([]) == set()


def test_sharding_follows_colocation():
    with tf.Graph().as_default() as graph:
        with scopes.ipu_shard(2):
            first = tf.constant(1, name="first")
        with tf.compat.v1.colocate_with(first.op):
            second = tf.constant(2, name="second")
        with tf.compat.v1.colocate_with(second.op):
            third = tf.constant(3, name="third")
        free = tf.constant(4, name="free")
        assert sharding.get_shard_from_colocation(second.op) == [2]
        assert sharding.get_shard_from_colocation(free.op) is None
        sharding.propagate_sharding(graph)
        assert [sharding.get_sharding(t.op) for t in (second, third, free)] == [[2], [2], None]
    sharding.enable_sharded_gradient_tape()


def test_constants_have_the_names_of_tensorflow():
    assert scopes.FRONTEND_ATTRIBUTES_NAME == "_XlaFrontendAttributes"
    assert scopes.OUTSIDE_COMPILATION_NAME == "_xla_outside_compilation"
