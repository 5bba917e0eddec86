"""What openipu uses of TensorFlow beyond its public API, and what it replaces in it: here, and nowhere else."""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.python.autograph.core import ag_ctx, config, config_lib
from tensorflow.python.autograph.impl import api as autograph
from tensorflow.python.client import session as client_session
from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.distribute import one_device_strategy
from tensorflow.python.eager import context, lift_to_graph
from tensorflow.python.eager.polymorphic_function import compiler_ir, concrete_function, polymorphic_function
from tensorflow.python.framework import auto_control_deps_utils, convert_to_constants, func_graph
from tensorflow.python.ops import control_flow_util
from tensorflow.python.trackable.autotrackable import AutoTrackable

from openipu.frameworks import Private

_PYTHON = "tensorflow.python"
_FUNCTIONS = f"{_PYTHON}.eager.polymorphic_function"
_VARIABLE = f"{_PYTHON}.ops.resource_variable_ops.ResourceVariable"
_GRAPH = f"{_PYTHON}.framework.ops.Graph"
_OPERATION = f"{_PYTHON}.framework.ops.Operation"
_SESSION = f"{_PYTHON}.client.session.BaseSession"
_V1_OPTIMIZER = f"{_PYTHON}.training.optimizer.Optimizer"

TABLE = (
    Private(
        "tensorflow.python.trackable.autotrackable.AutoTrackable",
        "variables that are saved with a Keras layer and are no weights of it",
    ),
    Private(
        f"{_VARIABLE}._handle",
        "every use of a variable leads through it, so a property in its place brings the value home",
        "the object's class is a subclass made for it; assigning the class it was made from gives the plain one back",
    ),
    Private(
        f"{_FUNCTIONS}.polymorphic_function.Function.__call__",
        "traced functions hold handles of their own, so values come home before one is called",
        "the wrapper keeps the original as `__wrapped__`",
    ),
    Private(
        f"{_FUNCTIONS}.concrete_function.ConcreteFunction.__call__",
        "as for Function.__call__",
        "the wrapper keeps the original as `__wrapped__`",
    ),
    Private(f"{_FUNCTIONS}.compiler_ir.from_concrete_function", "StableHLO of a function that is traced already"),
    Private(
        f"{_PYTHON}.framework.auto_control_deps_utils.get_read_only_resource_input_indices_graph",
        "which variables a traced function may assign",
    ),
    Private(
        f"{_PYTHON}.framework.convert_to_constants.convert_variables_to_constants_v2",
        "exported functions hold the values of their variables",
    ),
    Private(f"{_PYTHON}.eager.context.eager_mode", "a program is captured while a host function is being traced"),
    Private(f"{_PYTHON}.distribute.one_device_strategy.OneDeviceExtended", "the base of the IPU's strategy"),
    Private(f"{_PYTHON}.distribute.one_device_strategy._OneDeviceReplicaContext", "functions are traced in it"),
    Private("tensorflow.compiler.xla.xla_data_pb2.FrontendAttributes", "how XLA's bridge spells string attributes"),
    Private("tensorflow.compiler.tf2xla.ops.gen_xla_ops.xla_custom_call", "operations that only the IPU has"),
    Private("tensorflow.compiler.tf2xla.ops.gen_xla_ops.xla_custom_call_v2", "those of them with several results"),
    Private(f"{_OPERATION}._set_attr", "string attributes of operations that exist already"),
    Private(f"{_OPERATION}._set_device", "initial values are computed on the CPU"),
    Private(f"{_GRAPH}._distribution_strategy_stack", "a scope that a signal came into is left as a whole"),
    Private(f"{_GRAPH}._variable_creator_stack", "a scope that a signal came into is left as a whole"),
    Private(f"{_GRAPH}._get_function", "which inputs of a function are labels or indices, through the calls in it"),
    Private(f"{_GRAPH}._attr_scope_map", "string attributes of operations to come"),
    Private(f"{_GRAPH}._attr_scope", "the number of a compiled program, on its operations"),
    Private(
        f"{_PYTHON}.ops.control_flow_util.GraphOrParentsInXlaContext", "what is only allowed in compiled functions"
    ),
    Private(f"{_PYTHON}.data.ops.dataset_ops.UnaryUnchangedStructureDataset", "the base of BufferDataset"),
    Private(f"{_PYTHON}.data.ops.dataset_ops.DatasetV2._variant_tensor", "datasets that stand for others"),
    Private(f"{_PYTHON}.data.ops.dataset_ops.DatasetV2._inputs", "whether a dataset only repeats arrays"),
    Private(
        f"{_PYTHON}.data.ops.dataset_ops.DatasetV2.__iter__",
        "iterators made in the scope of a strategy belong to the IPU",
        "the wrapper keeps the original as `__wrapped__`",
    ),
    Private(
        f"{_PYTHON}.autograph.core.config.CONVERSION_RULES",
        "AutoGraph converts the user's functions, not openipu's, as it does with TensorFlow's own",
        "the rule for openipu comes first",
    ),
    Private(f"{_PYTHON}.framework.func_graph.func_graph_from_py_func", "a function's graph inside of another graph"),
    Private(
        f"{_PYTHON}.framework.func_graph.FuncGraph.capture",
        "arguments of such a function; what the host computes in the middle of a program comes into it there",
        "deleting the attribute of the graph, which covers its class's",
    ),
    Private(f"{_GRAPH}._get_control_flow_context", "whether operations stand in a loop or a branch"),
    Private(f"{_PYTHON}.eager.lift_to_graph.lift_to_graph", "initial values that were computed in such a function"),
    Private(f"{_PYTHON}.data.ops.dataset_ops._VariantDataset", "a graph's dataset, outside of the graph"),
    Private(
        f"{_SESSION}._do_run",
        "every run of a session leads through it: programs run past the session, and variables are on the device",
        "the wrapper keeps the original as `__wrapped__`",
    ),
    Private(
        f"{_SESSION}._make_callable_from_options",
        "runs that do not lead through `_do_run`: the session has all values before them",
        "the wrapper keeps the original as `__wrapped__`",
    ),
    Private(
        "tensorflow.compat",
        "`estimator`, a namespace that TensorFlow has had, is put into it and into those of both versions",
        "deleting the attribute",
    ),
    Private(f"{_PYTHON}.autograph.impl.api.tf_convert", "bodies of loops are the user's functions"),
    Private(
        f"{_V1_OPTIMIZER}._create_slots", "optimizers that wrap others make their slots before a function is traced"
    ),
    Private(f"{_VARIABLE}._shared_name", "Keras 2 names the slots of a variable by it"),
)

FrontendAttributes: Any = vars(xla_data_pb2)["FrontendAttributes"]
OneDeviceExtended = one_device_strategy.OneDeviceExtended
UnchangedStructureDataset = dataset_ops.UnaryUnchangedStructureDataset

_adopted_classes: dict[type, type] = {}


class Kept(AutoTrackable):
    """Holds variables of a Keras layer that are saved with it and are no weights of it."""

    states: Any = None


def shared_name(variable: Any) -> str:
    """The name of a variable without what its graph or copy adds to it."""
    return variable._shared_name


def raw_handle(variable: tf.Variable) -> tf.Tensor:
    """The variable's handle, past the property that `watch_handle` put in its place."""
    return variable.__dict__["_handle"]


def watch_handle(variable: tf.Variable, before_use: Callable[[Any], None]) -> None:
    """Call `before_use(variable)` whenever the variable's handle is asked for, by Python or by TensorFlow's C++.

    Args:
      variable: whose class is replaced by a subclass in which `_handle` is a property.
      before_use: the same function for all variables of a class.
    """
    original = type(variable)
    if original not in _adopted_classes:

        def get(variable: Any) -> Any:
            before_use(variable)
            return raw_handle(variable)

        def put(variable: Any, handle: Any) -> None:
            variable.__dict__["_handle"] = handle

        names = {
            "_handle": property(get, put),
            "__module__": original.__module__,
            "__qualname__": original.__qualname__,
        }
        _adopted_classes[original] = type(original.__name__, (original,), names)
    variable.__class__ = _adopted_classes[original]


def watch_functions(before_call: Callable[[], None]) -> None:
    """Call `before_call()` before every call of a traced function, of any kind."""

    def watched(call: Callable) -> Callable:
        @functools.wraps(call)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            before_call()
            return call(self, *args, **kwargs)

        return wrapper

    for owner in (polymorphic_function.Function, concrete_function.ConcreteFunction):
        owner.__call__ = watched(owner.__call__)


def stablehlo(concrete: Any) -> str:
    """A traced function as StableHLO; asking the function itself would trace it anew outside the strategy's scope."""
    return compiler_ir.from_concrete_function(concrete)(stage="stablehlo")


def read_only_inputs(graph: Any) -> Iterable[int]:
    """Which inputs of a traced function are resources that it only reads."""
    return auto_control_deps_utils.get_read_only_resource_input_indices_graph(graph)


def eager_mode() -> contextlib.AbstractContextManager:
    """Eager execution, also while a function is traced."""
    return context.eager_mode()


def replica_context(strategy: tf.distribute.Strategy) -> contextlib.AbstractContextManager:
    """The context in which a function of one replica is traced."""
    return one_device_strategy._OneDeviceReplicaContext(strategy)


def scopes_of_thread() -> Callable[[], None]:
    """A function that makes this thread's strategies and creators of variables those of now again."""
    graph = tf.compat.v1.get_default_graph()
    strategies, creators = list(graph._distribution_strategy_stack), graph._variable_creator_stack

    def restore() -> None:
        graph._distribution_strategy_stack = strategies
        graph._variable_creator_stack = creators

    return restore


def custom_call(
    operands: list[tf.Tensor], target: str, config: str, dtype: tf.DType, shape: tf.TensorShape
) -> tf.Tensor:
    """An operation that XLA knows by name only; the newer XlaCustomCallV2 fixes memory layouts as well."""
    return gen_xla_ops.xla_custom_call(operands, target, config, dtype, shape)


def custom_call_with_results(
    operands: list[tf.Tensor], target: str, config: str, dtypes: list[tf.DType], shapes: list[Any]
) -> list[tf.Tensor]:
    """An operation with several results that XLA knows by name only."""
    results: Any = gen_xla_ops.xla_custom_call_v2(operands, target, config, False, dtypes, shapes)
    return results


def set_attribute(op: tf.Operation, name: str, value: Any) -> None:
    """Replace an attribute of an operation."""
    op._set_attr(name, value)


def set_device(op: tf.Operation, device: str) -> None:
    """Place an operation that exists already."""
    op._set_device(device)


def attributes_to_come(graph: tf.Graph) -> MutableMapping[str, Any]:
    """The attributes that operations created from now on get; the graph's own way to change them is a context."""
    return graph._attr_scope_map


def attribute_scope(graph: tf.Graph, attributes: dict[str, Any]) -> contextlib.AbstractContextManager:
    """Give operations created inside these attributes."""
    return graph._attr_scope(attributes)


def in_xla_context(graph: tf.Graph) -> bool:
    """Whether operations of this graph are compiled."""
    return bool(control_flow_util.GraphOrParentsInXlaContext(graph))


def variant(dataset: Any) -> tf.Tensor:
    """The tensor that stands for a dataset."""
    return dataset._variant_tensor


def create_slots(optimizer: Any, variables: list[tf.Variable]) -> None:
    """Make the slots of an optimizer of `tf.compat.v1.train`."""
    optimizer._create_slots(variables)


def replace_iterators(make: Callable[[Any, str], Any]) -> None:
    """Let `iter(dataset)` give what `make(dataset, module that asks)` returns, unless that is None."""
    plain = dataset_ops.DatasetV2.__iter__

    @functools.wraps(plain)
    def iterate(self: Any) -> Any:
        made = make(self, sys._getframe(1).f_globals.get("__name__", ""))
        return plain(self) if made is None else made

    dataset_ops.DatasetV2.__iter__ = iterate


def plain_iterator(dataset: tf.data.Dataset) -> Iterator[Any]:
    """An ordinary iterator, whatever `replace_iterators` did."""
    iterate = type(dataset).__iter__
    return getattr(iterate, "__wrapped__", iterate)(dataset)


def flat_iterator(dataset: tf.data.Dataset) -> Callable[[], list[tf.Tensor]]:
    """What gives the next element's tensors, without their structure: putting that together takes most of the time.

    It raises OutOfRangeError at the end.
    """
    iterator: Any = plain_iterator(dataset)
    types, shapes = iterator._flat_output_types, iterator._flat_output_shapes
    return lambda: tf.raw_ops.IteratorGetNext(
        iterator=iterator._iterator_resource, output_types=types, output_shapes=shapes
    )


def called_graph(operation: Any) -> Any:
    """The graph of the function that an operation calls; None where TensorFlow does not keep it."""
    return getattr(operation.graph._get_function(operation.get_attr("f").name), "graph", None)


def never_convert(package: str) -> None:
    """Keep AutoGraph from converting the functions of a package."""
    config.CONVERSION_RULES = (config_lib.DoNotConvert(package), *config.CONVERSION_RULES)


def converted(function: Callable) -> Callable:
    """A function of the user with its loops and conditions from AutoGraph, if the caller has its own from there."""
    return autograph.tf_convert(function, ag_ctx.control_status_ctx())


def always_converted(function: Callable) -> Callable:
    """A function of the user with its loops and conditions from AutoGraph, whoever calls it."""
    return autograph.tf_convert(function, ag_ctx.ControlStatusCtx(status=ag_ctx.Status.ENABLED))


def function_graph(name: str, build: Callable[[], list[tf.Tensor]]) -> Any:
    """A graph of its own for what `build()` builds; all of its operations that change something run, in order."""
    return func_graph.func_graph_from_py_func(name, build, (), {}, add_control_dependencies=True)


def empty_function_graph(name: str) -> Any:
    """A function's graph without operations; tensors of other graphs that they use become its inputs."""
    return func_graph.FuncGraph(name)


def replace_foreign(graph: Any, other: Any, replacement: Callable[[tf.Tensor], tf.Tensor]) -> None:
    """Have a function's graph use `replacement(tensor)` wherever a tensor of the other graph is used in it."""
    capture = graph.capture

    def replacing(tensor: Any, name: str | None = None, shape: Any = None) -> Any:
        mine = isinstance(tensor, tf.Tensor) and not hasattr(tensor, "numpy") and tensor.graph is other
        return capture(replacement(tensor) if mine else tensor, name, shape)

    graph.capture = replacing


def functions_around(graph: Any, surrounding: tf.Graph | None) -> Iterator[Any]:
    """A function's graph and those that it is built in, from the inside out, up to the surrounding one."""
    while isinstance(graph, func_graph.FuncGraph) and graph is not surrounding:
        yield graph
        graph = graph.outer_graph


def is_function(graph: Any) -> bool:
    """Whether a graph is that of a function."""
    return isinstance(graph, func_graph.FuncGraph)


def is_control_flow(graph: Any) -> bool:
    """Whether a function's graph is that of a branch or a loop, or operations of one are being added to it."""
    around: Any = graph._get_control_flow_context()
    while around is not None:
        # That of a compiled function is neither.
        if around.IsCondContext() or around.IsWhileContext():
            return True
        around = around.outer_context
    return type(graph).__name__ in ("CondBranchFuncGraph", "WhileBodyFuncGraph", "WhileCondFuncGraph")


def call_directly(concrete: Any, arguments: list[tf.Tensor]) -> Any:
    """Call a traced function past what `watch_functions` put in the way."""
    call = concrete_function.ConcreteFunction.__call__
    return getattr(call, "__wrapped__", call)(concrete, *arguments)


def captured_by(graph: Any, tensor: tf.Tensor) -> tf.Tensor:
    """The tensor that stands in a function's graph for one of the surrounding graph."""
    return graph.capture(tensor)


def lifted(tensor: tf.Tensor, graph: tf.Graph) -> tf.Tensor:
    """A tensor of a function's graph, computed in another graph."""
    return lift_to_graph.lift_to_graph([tensor], graph)[tensor]


def dataset_message(dataset: tf.data.Dataset) -> tf.Tensor:
    """A dataset of a graph as a string that is made when the graph runs."""
    return tf.raw_ops.DatasetToGraphV2(input_dataset=variant(dataset), external_state_policy=1)


def dataset_from(message: tf.Tensor, element_spec: Any) -> Any:
    """The dataset of such a string."""
    return dataset_ops._VariantDataset(tf.raw_ops.DatasetFromGraph(graph_def=message), element_spec)


def dataset_parts(dataset: Any) -> tuple[str, list[Any], dict[str, Any]]:
    """What makes a dataset: the name of its class, the datasets it is made from, and its attributes by their names."""
    while isinstance(dataset, dataset_ops.DatasetV1Adapter):
        dataset = dataset._dataset
    attributes = {name.lstrip("_"): value for name, value in vars(dataset).items()}
    return type(dataset).__name__.lstrip("_"), list(dataset._inputs()), attributes


class SessionCall:
    """One run of a session of TensorFlow 1.

    Attributes:
      targets: the operations that are run.
      fetches: the tensors whose values are wanted.
      feeds: the values that are given, by the references of their tensors.
      is_plain: whether nobody looks on (no options, no metadata).
    """

    def __init__(self, session: Any, targets: list, fetches: list, feeds: dict, options: Any, metadata: Any) -> None:
        self._session = session
        self.targets, self.fetches, self.feeds = targets, fetches, feeds
        self._options, self._metadata = options, metadata

    @property
    def is_plain(self) -> bool:
        """Whether nobody looks on."""
        return self._options is None and self._metadata is None

    def other(self, targets: list, fetches: list) -> "SessionCall":
        """The same feeds for other fetches."""
        return SessionCall(self._session, targets, fetches, self.feeds, self._options, self._metadata)

    def run(self) -> list[Any]:
        """Run it as TensorFlow does."""
        run: Any = getattr(client_session.BaseSession._do_run, "__wrapped__", client_session.BaseSession._do_run)
        return run(self._session, None, self.targets, self.fetches, self.feeds, self._options, self._metadata)


def run_in_session(session: Any, targets: Any, fetches: Any, feeds: dict[tf.Tensor, Any]) -> list[Any]:
    """Run something in a session, past what `replace_session_runs` put in the way."""
    given = {tensor.ref(): value for tensor, value in feeds.items()}
    return SessionCall(session, list(targets), list(fetches), given, None, None).run()


def replace_session_runs(
    run: Callable[[Any, SessionCall], list[Any]],
    before_partial_run: Callable[[Any], None],
    before_callable: Callable[[Any], None],
) -> None:
    """Lead every run of a session through a function.

    Args:
      run: gives the values of the fetches.
      before_partial_run: called with the session before it begins a run in parts.
      before_callable: called with the session before runs that cannot be led through the function.
    """
    base: Any = client_session.BaseSession
    plain, plain_setup, plain_callable = base._do_run, base.partial_run_setup, base.make_callable
    plain_options = base._make_callable_from_options

    @functools.wraps(plain)
    def do_run(self: Any, handle: Any, targets: Any, fetches: Any, feeds: Any, options: Any, metadata: Any) -> Any:
        if handle is not None:
            return plain(self, handle, targets, fetches, feeds, options, metadata)
        return run(self, SessionCall(self, targets, fetches, feeds, options, metadata))

    @functools.wraps(plain_setup)
    def partial_run_setup(self: Any, *args: Any, **kwargs: Any) -> Any:
        before_partial_run(self)
        return plain_setup(self, *args, **kwargs)

    @functools.wraps(plain_callable)
    def make_callable(self: Any, fetches: Any, feed_list: Any = None, accept_options: bool = False) -> Any:
        # With a list of feeds, callables lead through `run`.
        return plain_callable(self, fetches, [] if feed_list is None else feed_list, accept_options)

    @functools.wraps(plain_options)
    def from_options(self: Any, callable_options: Any) -> Any:
        made = plain_options(self, callable_options)

        def call(*args: Any, **kwargs: Any) -> Any:
            before_callable(self)
            return made(*args, **kwargs)

        return call

    base._do_run, base.partial_run_setup, base.make_callable = do_run, partial_run_setup, make_callable
    base._make_callable_from_options = from_options


def frozen(concrete: Any) -> Any:
    """The same function of flat tensors with constants in the place of its variables."""
    return convert_to_constants.convert_variables_to_constants_v2(concrete)


def offer_namespace(name: str, module: Any) -> None:
    """Give TensorFlow, and its namespaces of both versions, an attribute that it no longer has."""
    for namespace in (tf, tf.compat.v1, tf.compat.v2):
        if name not in vars(namespace):
            setattr(namespace, name, module)
