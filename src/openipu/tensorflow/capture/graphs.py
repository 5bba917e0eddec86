"""What a traced TensorFlow function does, read from its graph: far cheaper than having XLA translate it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from openipu.compiler import digest
from openipu.tensorflow.boundary import FrontendAttributes, read_only_inputs
from openipu.tensorflow.capture.graph_attributes import FRONTEND_ATTRIBUTES_NAME
from openipu.tensorflow.capture.placement import SHARD_ATTRIBUTE, parse_shards

Nodes = Iterable[tf.compat.v1.NodeDef]

# Names that are different in every trace, and what only TensorFlow's own placer and autodiff read.
_NAMES = {
    "_class", "_gradient_op_type", "_user_specified_name", "api_implements", "backward_function_name",
    "forward_function_name",
}  # fmt: skip
# Operations of the user's own, and those that the host runs in the middle of a program.
_FOREIGN = (b"openipu.user_operation", b"openipu.outside")
# The attribute that names a custom call.
_TARGETS = {"XlaCustomCall": "target_name", "XlaCustomCallV2": "call_target_name"}
# Stateful random operations; stateless ones and generators have their state among their inputs.
_DRAWING = ("Random", "TruncatedNormal", "ParameterizedTruncatedNormal", "Multinomial")


class Graph:
    """A traced function.

    Attributes:
      written: which of its inputs are variables that it may assign.
      draws: whether it uses random operations without a state of their own.
      shards: IPUs that `ipu_shard` scopes spread its operations over.
      calls: the names of its custom calls.
      traced: TensorFlow's own graph.
    """

    def __init__(self, concrete: Any) -> None:
        self.traced = concrete.graph
        graph: tf.compat.v1.GraphDef = concrete.graph.as_graph_def()
        self._functions = {function.signature.name: function for function in graph.library.function}
        self._nodes = graph.node
        self._inputs = [tensor.name for tensor in concrete.inputs]
        self._outputs = [tensor.name for tensor in concrete.outputs]
        everything = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
        read = set(read_only_inputs(concrete.graph))
        resources = [i for i, t in enumerate(concrete.inputs) if t.dtype == tf.resource]
        self.written = tuple(i for i in resources if i not in read)
        self.draws = any(node.op.startswith(_DRAWING) for node in everything)
        self.shards = _shards(everything)
        self.calls = frozenset(_target(node) for node in everything)

    @property
    def foreign(self) -> bool:
        """Whether it calls Python of the user's own, which is not in the graph."""
        return any(name.startswith(_FOREIGN) for name in self.calls)

    @property
    def identity(self) -> str:
        """A hash that graphs share only if they compute the same; the names in them do not matter."""
        described = _Description(self._functions)
        numbers, lines = described.nodes(self._nodes, {})
        ends = [_reference(name, numbers) for name in (*self._inputs, "->", *self._outputs)]
        return digest(*lines, *ends)


class _Description:
    """Nodes and functions as bytes without names."""

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self._functions = functions
        self._known: dict[str, str] = {}

    def nodes(self, nodes: Nodes, arguments: Mapping[str, str]) -> tuple[dict[str, str], list[str | bytes]]:
        """What each node is called instead, and the description of them all."""
        numbers = {**arguments, **{node.name: f"n{index}" for index, node in enumerate(nodes)}}
        lines: list[str | bytes] = []
        for node in nodes:
            references = [_reference(name, numbers) for name in node.input]
            # Those that only order operations come last, and TensorFlow sorts them by their names.
            lines += [node.op, *sorted(references, key=lambda name: name if name.startswith("^") else "")]
            for name in sorted(node.attr):
                if name not in _NAMES:
                    lines += [name, *self._attribute(node.attr[name])]
        return numbers, lines

    def _attribute(self, value: tf.compat.v1.AttrValue) -> Iterator[str | bytes]:
        called = [value.func] if value.HasField("func") else value.list.func
        if not called:
            yield value.SerializeToString(deterministic=True)
        for function in called:
            yield self._function(function.name)
            for name in sorted(function.attr):
                yield name
                yield function.attr[name].SerializeToString(deterministic=True)

    def _function(self, name: str) -> str:
        if name not in self._functions:
            return name
        if name not in self._known:
            self._known[name] = "itself"
            self._known[name] = self._described(self._functions[name])
        return self._known[name]

    def _described(self, function: Any) -> str:
        signature = function.signature
        arguments = {argument.name: f"a{index}" for index, argument in enumerate(signature.input_arg)}
        numbers, lines = self.nodes(function.node_def, arguments)
        types = [argument.SerializeToString() for argument in _unnamed([*signature.input_arg, *signature.output_arg])]
        returned = [_reference(function.ret[result.name], numbers) for result in signature.output_arg]
        kept = sorted(_reference(name, numbers) for name in function.control_ret.values())
        return digest(*lines, *types, *returned, "control", *kept)


def _unnamed(arguments: Iterable[Any]) -> Iterator[Any]:
    for argument in arguments:
        copy = type(argument)()
        copy.CopyFrom(argument)
        copy.ClearField("name")
        yield copy


def _reference(name: str, numbers: Mapping[str, str]) -> str:
    """An input of a node: "name", "name:1", "name:output:1", or "^name" for order alone."""
    mark = "^" if name.startswith("^") else ""
    node, colon, output = name.removeprefix("^").partition(":")
    # TensorFlow leaves the first output out in some places.
    output = "" if output == "0" else colon + output
    return f"{mark}{numbers.get(node, node)}{output}"


def _target(node: tf.compat.v1.NodeDef) -> bytes:
    """The name of a custom call."""
    return node.attr[_TARGETS[node.op]].s if node.op in _TARGETS else b""


def _shards(nodes: Nodes) -> int:
    """One more than the highest shard any operation is assigned to."""
    highest = 0
    for node in nodes:
        if FRONTEND_ATTRIBUTES_NAME in node.attr:
            attributes = FrontendAttributes.FromString(node.attr[FRONTEND_ATTRIBUTES_NAME].s).map
            highest = max(highest, *(parse_shards(attributes.get(SHARD_ATTRIBUTE)) or (0,)))
    return 1 + highest
