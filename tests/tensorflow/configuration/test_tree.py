"""IPUConfig as an object: its attributes, their checks, and its printed and stored forms."""

import copy
import logging
import pickle
import typing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openipu.tensorflow.ipu import config
from openipu.tensorflow.ipu.config import IPUConfig

# Name, type as users see it, default as it prints; in the order users see it.
SELECTION = "typing.Union[int, typing.List[int], typing.Tuple[int, ...]]"
FACTS = f"""
allow_recompute | bool | False
selection_order | SelectionOrder | SelectionOrder.AUTO
serialization_output_folder | str | ''
compilation_poplar_options | dict | {{}}
gcl_poplar_options | dict | {{}}
auto_select_ipus | {SELECTION} | []
select_ipus | {SELECTION} | []
convolutions.poplar_options | dict | {{}}
device_connection.type | DeviceConnectionType | DeviceConnectionType.ALWAYS
device_connection.version | str | ''
device_connection.enable_remote_buffers | bool | False
slices.poplar_options | dict | {{}}
experimental.always_rearrange_copies_on_the_host | bool | False
experimental.enable_remote_buffer_embedding | bool | False
experimental.enable_prng_stability | bool | False
experimental.multi_replica_distribution.process_index | int | 0
experimental.multi_replica_distribution.process_count | int | 0
floating_point_behaviour.inv | bool | False
floating_point_behaviour.div0 | bool | False
floating_point_behaviour.oflo | bool | False
floating_point_behaviour.esr | StochasticRoundingBehaviour | StochasticRoundingBehaviour.OFF
floating_point_behaviour.nanoo | bool | False
floating_point_behaviour.set_all | bool | False
io_tiles.num_io_tiles | int | 0
io_tiles.place_ops_on_io_tiles | bool | False
io_tiles.available_memory_proportion | float | 0.9
ipu_model.compile_ipu_code | bool | True
ipu_model.tiles_per_ipu | int | 0
ipu_model.version | str | 'ipu2'
matmuls.clear_pass_type | bool | False
matmuls.poplar_options | dict | {{}}
norms.use_stable_statistics | bool | False
norms.experimental.distributed_batch_norm_replica_group_size | int | 1
optimizations.math.fast | bool | False
optimizations.math.dot_strength | bool | True
optimizations.prefetch_data_streams | bool | True
optimizations.combine_embedding_lookups | bool | False
optimizations.combine_matmuls | bool | False
optimizations.enable_graph_outlining | bool | True
optimizations.merge_infeed_io_copies | bool | True
optimizations.maximum_cross_replica_sum_buffer_size | int | 0
optimizations.maximum_reduce_scatter_buffer_size | int | 0
optimizations.maximum_inter_ipu_copies_buffer_size | int | 0
optimizations.maximum_send_recv_cluster_size | int | 0
optimizations.maximum_reduce_many_buffer_size | int | 0
optimizations.maximum_all_gather_buffer_size | int | 0
optimizations.minimum_remote_tensor_size | int | 128
optimizations.merge_remote_buffers | MergeRemoteBuffersBehaviour | MergeRemoteBuffersBehaviour.IF_BENEFICIAL
optimizations.enable_gather_simplifier | bool | True
optimizations.triangular_solve_expander_block_size | int | 0
optimizations.cholesky_block_size | int | 0
optimizations.enable_fast_math | bool | False
optimizations.enable_dynamic_slice_replacement | bool | True
pooling.poplar_options | dict | {{}}
scheduling.algorithm | SchedulingAlgorithm | SchedulingAlgorithm.CHOOSE_BEST
scheduling.maximum_scheduler_lookahead_depth | int | 5
scheduling.maximum_scheduler_search_space_size | int | 64
"""
ROWS = [tuple(line.split(" | ")) for line in FACTS.strip().splitlines()]
TYPES = {name: kind for name, kind, _ in ROWS}

enums = {
    name: st.sampled_from(getattr(config, name))
    for name in (
        "SelectionOrder",
        "DeviceConnectionType",
        "StochasticRoundingBehaviour",
        "MergeRemoteBuffersBehaviour",
        "SchedulingAlgorithm",
    )
}
numbers = st.lists(st.integers(0, 64), max_size=3)
VALUES = {
    "bool": st.booleans(),
    "int": st.integers(-1000, 1000),
    "float": st.floats(0, 1),
    "str": st.text(max_size=5),
    "dict": st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
    SELECTION: st.integers(0, 64) | numbers | numbers.map(tuple),
    **enums,
}


class Text(str):
    pass


class Dictionary(dict):
    pass


WRONG = [*VALUES.values(), st.none(), st.just(Text("x")), st.just(Dictionary()), st.just([True]), st.just(("1",))]


def kind_of(value):
    if isinstance(value, list | tuple):
        return SELECTION if all(type(element) is int for element in value) else "no kind"
    return "no kind" if value is None else type(value).__name__


def set_path(cfg, path, value):
    *categories, last = path.split(".")
    for category in categories:
        cfg = getattr(cfg, category)
    setattr(cfg, last, value)


def get_path(cfg, path):
    for part in path.split("."):
        cfg = getattr(cfg, part)
    return cfg


def test_attributes_defaults_and_order_are_the_references():
    lines = [f"{name} = {default}" for name, _, default in ROWS]
    assert str(IPUConfig()).splitlines() == lines
    assert repr(IPUConfig()).splitlines() == ["IPUConfig:", *(f"  {line}" for line in lines)]
    assert list(IPUConfig().to_dict()) == [name for name, _, _ in ROWS]


@pytest.mark.parametrize("name, kind, default", ROWS)
def test_metadata(name, kind, default):
    metadata = IPUConfig().get_attribute_metadata(name)
    assert (metadata.name, metadata.type) == (name, kind)
    assert metadata.default == get_path(IPUConfig(), name)
    assert metadata.deprecated == (name == "optimizations.enable_fast_math")
    assert metadata.__doc__
    metadata.check_type(metadata.default)


def test_metadata_of_selections_and_categories():
    cfg = IPUConfig()
    assert len(typing.get_args(cfg.get_attribute_metadata("auto_select_ipus").actual_type)) == 3
    assert cfg.get_attribute_metadata("optimizations.math").name == "optimizations.math"
    assert cfg.optimizations.get_attribute_metadata("math.fast").actual_type is bool


@pytest.mark.parametrize("path", ["a", "a.b", "matmuls.options", "allow_recompute.x", ""])
def test_metadata_of_a_bad_path(path):
    with pytest.raises(ValueError, match=f"^Could not get attribute metadata for '{path}': "):
        IPUConfig().get_attribute_metadata(path)


@given(st.data())
def test_only_values_of_exactly_the_right_type_can_be_set(data):
    cfg = IPUConfig()
    name = data.draw(st.sampled_from(sorted(TYPES)))
    value = data.draw(st.one_of(WRONG))
    kind = TYPES[name]
    if kind_of(value) == kind or (kind == SELECTION and kind_of(value) == "int"):
        set_path(cfg, name, value)
        assert get_path(cfg, name) is value
    else:
        before = get_path(cfg, name)
        with pytest.raises(TypeError) as error:
            set_path(cfg, name, value)
        assert str(error.value) == f"Trying to set {name} to {value}, but it must be of type {kind}"
        assert get_path(cfg, name) is before


@pytest.mark.parametrize("value", [True, [True], (1, 2.0), "1", None])
def test_selections_take_exact_integers_only(value):
    with pytest.raises(TypeError, match=r"Trying to set auto_select_ipus"):
        IPUConfig().auto_select_ipus = value


def test_unknown_names_suggest_a_near_one_of_the_same_category():
    cfg = IPUConfig()
    wrong = "'{}' is not a valid attribute of this config. {}"
    with pytest.raises(ValueError) as error:
        cfg.auto_select_ipu = 1
    assert str(error.value) == wrong.format("auto_select_ipu", "Did you mean 'auto_select_ipus'?")
    with pytest.raises(ValueError) as error:
        _ = cfg.optimizations.maths
    assert str(error.value) == wrong.format("maths", "Did you mean 'optimizations.math'?")
    with pytest.raises(ValueError) as error:
        cfg.zzz = 1
    assert str(error.value) == wrong.format("zzz", "")
    with pytest.raises(ValueError):
        cfg.to_dict = None


@pytest.mark.parametrize("name", ["matmuls", "optimizations.math", "experimental.multi_replica_distribution"])
def test_categories_cannot_be_assigned(name):
    with pytest.raises(Exception, match=f"^{name} is a category and cannot be assigned to.$"):
        set_path(IPUConfig(), name, {})


def test_deprecated_options_warn_and_work(caplog):
    cfg = IPUConfig()
    cfg.optimizations.enable_fast_math = True
    assert "optimizations.enable_fast_math has been deprecated: " in caplog.text
    assert cfg.optimizations.enable_fast_math


def test_deprecating_decorators(caplog):
    @config.deprecate_config_attribute("norms", "gone")
    @config.deprecate_config_attributes([("allow_recompute", "no"), ("select_ipus", "why")])
    class Mine(IPUConfig):
        pass

    cfg = Mine()
    cfg.norms.experimental.distributed_batch_norm_replica_group_size = 2
    cfg.allow_recompute = True
    cfg.optimizations.enable_fast_math = True
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "norms.experimental.distributed_batch_norm_replica_group_size has been deprecated",
        "allow_recompute has been deprecated",
        "optimizations.enable_fast_math has been deprecated",
    ]
    assert cfg.get_attribute_metadata("norms").deprecated_msg == "gone"
    assert not IPUConfig().get_attribute_metadata("norms").deprecated
    with pytest.raises(ValueError, match=r"nonsense"):
        config.deprecate_config_attribute("nonsense", "x")(Mine)


def changed_configs():
    def build(data):
        cfg = IPUConfig()
        for name, value in data.items():
            set_path(cfg, name, value)
        return cfg

    # Without the deprecated option, whose warnings would fill the log.
    options = {name: VALUES[kind] for name, kind in TYPES.items() if name != "optimizations.enable_fast_math"}
    return st.fixed_dictionaries({}, optional=options).map(build)


@settings(max_examples=25)
@given(changed_configs())
def test_dictionary_and_json_round_trips(cfg):
    from_dict, from_json = IPUConfig(), IPUConfig()
    from_dict.from_dict(cfg.to_dict())
    assert str(from_dict) == str(cfg)
    from_json.from_json(cfg.to_json())
    # JSON has no tuples.
    assert from_json.to_dict() == {k: list(v) if isinstance(v, tuple) else v for k, v in cfg.to_dict().items()}


@settings(max_examples=25)
@given(changed_configs())
def test_copies_are_equal_and_independent(cfg):
    for twin in (copy.deepcopy(cfg), pickle.loads(pickle.dumps(cfg))):
        assert type(twin) is IPUConfig and repr(twin) == repr(cfg)
        before = str(cfg)
        twin.matmuls.poplar_options["new"] = "1"
        twin.optimizations.math.fast = not twin.optimizations.math.fast
        assert str(cfg) == before
        with pytest.raises(TypeError):
            twin.matmuls.poplar_options = 1


def test_dictionaries_hold_enums_as_integers_and_may_be_incomplete(caplog):
    cfg = IPUConfig()
    assert cfg.to_dict()["device_connection.type"] == 0
    cfg.allow_recompute = True
    caplog.set_level(logging.WARNING)
    cfg.from_dict({"selection_order": 2, "no.such.option": 1})
    assert cfg.selection_order is config.SelectionOrder.SNAKE
    assert cfg.allow_recompute
    assert "allow_recompute didn't have a value: the existing value will be retained" in caplog.text
    assert len(caplog.records) == len(ROWS) - 1


def test_unchanged_deprecated_options_do_not_warn_when_loaded(caplog):
    IPUConfig().from_dict(IPUConfig().to_dict())
    assert not caplog.records


def test_loading_checks_types():
    with pytest.raises(TypeError, match=r"io_tiles.num_io_tiles"):
        IPUConfig().from_dict({**IPUConfig().to_dict(), "io_tiles.num_io_tiles": True})


def test_subclasses_may_set_options_but_not_add_any():
    class Mine(IPUConfig):
        def __init__(self):
            super().__init__()
            self.auto_select_ipus = 2

    assert Mine().auto_select_ipus == 2
    with pytest.raises(ValueError):
        Mine().extra = 1


def test_options_show_in_completion():
    assert {"auto_select_ipus", "optimizations", "to_dict"} <= set(dir(IPUConfig()))
    assert "fast" in dir(IPUConfig().optimizations.math)


@pytest.mark.parametrize(
    "enum, members",
    [
        (config.SelectionOrder, {"AUTO": 0, "ZIGZAG": 1, "SNAKE": 2, "HOOF": 3}),
        (
            config.ExecutionProfileType,
            {"NO_PROFILE": 0, "DEVICE_PROFILE": 1, "IPU_PROFILE": 2, "TILE_PROFILE": 3},
        ),
        (config.DeviceConnectionType, {"ALWAYS": 0, "ON_DEMAND": 1, "PRE_COMPILE": 3, "NEVER": 2}),
        (config.MergeRemoteBuffersBehaviour, {"NO_MERGING": 0, "MERGE": 1, "IF_BENEFICIAL": 2}),
        (
            config.SchedulingAlgorithm,
            {"CHOOSE_BEST": 0, "CLUSTERING": 1, "POST_ORDER": 2, "LOOK_AHEAD": 3, "SHORTEST_PATH": 4},
        ),
        (config.StochasticRoundingBehaviour, {"OFF": 0, "ON": 1, "REPLICA_IDENTICAL_ONLY": 2}),
    ],
)
def test_enums(enum, members):
    assert {member.name: member.value for member in enum} == members


def test_rounding_from_a_truth_value():
    rounding = config.StochasticRoundingBehaviour
    assert rounding.from_bool(True) is rounding.ON
    assert rounding.from_bool(False) is rounding.OFF
