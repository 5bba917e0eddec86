"""Programs that were written for TensorFlow 1: how they are recognised, and what they get in place of TensorFlow 2.

`import tensorflow as tf` gives them `tensorflow.compat.v1`. Libraries go on getting TensorFlow 2, which they are
written for: what an import gives depends on who asks. This module imports neither TensorFlow nor Keras itself.
"""

import ast
import builtins
import functools
import os
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import attrs

# What TensorFlow has had in version 1 only, under its own name or under that of a part.
_ONLY_IN_1 = {
    "ConfigProto", "GPUOptions", "InteractiveSession", "Session", "app", "assign", "assign_add", "assign_sub",
    "contrib", "enable_eager_execution", "enable_resource_variables", "flags", "get_collection", "get_default_graph",
    "get_default_session", "get_local_variable", "get_variable", "get_variable_scope", "global_variables",
    "global_variables_initializer", "layers", "local_variables", "local_variables_initializer", "logging",
    "make_template", "placeholder", "placeholder_with_default", "py_func", "random_normal", "random_uniform",
    "reset_default_graph", "set_random_seed", "to_float", "to_int32", "trainable_variables", "truncated_normal",
    "variable_scope",
    "data.make_initializable_iterator", "data.make_one_shot_iterator", "nn.softmax_cross_entropy_with_logits_v2",
    "summary.FileWriter", "summary.merge_all", "train.AdagradOptimizer", "train.AdamOptimizer",
    "train.GradientDescentOptimizer", "train.MomentumOptimizer", "train.MonitoredTrainingSession",
    "train.RMSPropOptimizer", "train.Saver", "train.get_global_step", "train.get_or_create_global_step",
}  # fmt: skip
# What a program says that knows it runs on TensorFlow 2.
_AWARE = frozenset(("disable_v2_behavior", "disable_eager_execution", "enable_v2_behavior"))
_LARGEST_PROGRAM = 500
_OUR_OWN = ("openipu", "poptorch", "ipu_tensorflow_addons", "benchmarks")


@attrs.frozen
class Sign:
    """What gives a program away.

    Attributes:
      path, line: where it stands.
      name: what is used of TensorFlow there.
    """

    path: Path
    line: int
    name: str


def sign_of_tensorflow1(script: Path) -> Sign | None:
    """Where a program uses what only TensorFlow 1 has; None if it does not, or has prepared for TensorFlow 2.

    Args:
      script: the program; modules beside it that it imports are part of it.
    """
    found: Sign | None = None
    for path, tree in _modules(script):
        uses = [use for node in ast.walk(tree) if (use := _dotted(node)) is not None]
        if any(name.rpartition(".")[2] in _AWARE for name, _ in uses):
            return None
        found = found or _sign(path, tree, uses)
    return found


def _modules(script: Path) -> Iterator[tuple[Path, ast.AST]]:
    folder, waiting, seen = script.parent, [script], set()
    while waiting and len(seen) < _LARGEST_PROGRAM:
        path = waiting.pop(0)
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            # Python itself will say so.
            continue
        yield path, tree
        for name in _imported(tree):
            place = folder.joinpath(*name.split("."))
            waiting += [place.with_suffix(".py"), place / "__init__.py"]


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _dotted(node: ast.AST) -> tuple[str, int] | None:
    """An attribute of a name, as "tf.train.Saver", and its line."""
    parts, line = [], getattr(node, "lineno", 0)
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (".".join([node.id, *reversed(parts)]), line) if parts and isinstance(node, ast.Name) else None


def _sign(path: Path, tree: ast.AST, uses: list[tuple[str, int]]) -> Sign | None:
    names = {name for name, _ in _tensorflow_names(tree)}
    for name, line in sorted(uses, key=lambda use: use[1]):
        first, _, rest = name.partition(".")
        parts = rest.split(".")
        if first in names and (parts[0] in _ONLY_IN_1 or ".".join(parts[:2]) in _ONLY_IN_1):
            return Sign(path, line, name)
    return None


def _tensorflow_names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The names under which a module knows TensorFlow."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in ("tensorflow", "tensorflow.compat.v1"):
                    yield (alias.asname or alias.name.partition(".")[0]), alias.name
        elif isinstance(node, ast.ImportFrom) and node.module == "tensorflow.compat":
            yield from ((alias.asname or alias.name, alias.name) for alias in node.names if alias.name == "v1")


def install() -> None:
    """Let the program's own `import tensorflow` give TensorFlow 1 (OPENIPU_TF1)."""
    from openipu import environment

    if not environment.tensorflow1():
        return
    environment.legacy_keras_by_default()
    plain = builtins.__import__
    if getattr(plain, "__wrapped__", None) is not None:
        return

    @functools.wraps(plain)
    def __import__(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        found = plain(name, globals, locals, fromlist or (), level)
        if level or name.partition(".")[0] != "tensorflow" or not _is_program(globals):
            return found
        version1 = _version1()
        return version1 if name == "tensorflow" else found

    builtins.__import__ = __import__


@functools.cache
def _version1() -> ModuleType:
    """TensorFlow 1, with the behaviour that it had."""
    from tensorflow.compat import v1 as version1

    level = version1.logging.get_verbosity()
    version1.logging.set_verbosity(version1.logging.ERROR)
    version1.disable_v2_behavior()
    # Programs for the IPU have no others.
    version1.enable_resource_variables()
    version1.logging.set_verbosity(level)
    if not hasattr(version1, "contrib"):
        version1.contrib = _Contrib("tensorflow.contrib")
    return version1


class _Contrib(ModuleType):
    """In the place of a part of TensorFlow 1 that no release after it has."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        from openipu.errors import UnsupportedError

        raise UnsupportedError(
            f"tf.contrib.{name} is not supported: TensorFlow has no tf.contrib since version 2. Use tf.layers, "
            "tf.keras or tf.train in its place; operations of the IPU are in tensorflow.python.ipu."
        )


@functools.cache
def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = {paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"]}
    return tuple(os.path.realpath(folder) + os.sep for folder in folders)


def _is_program(globals: Mapping[str, Any] | None) -> bool:
    """Whether code of the program itself asks, and not a library."""
    if globals is None:
        return False
    name, file = globals.get("__name__") or "", globals.get("__file__")
    if name.partition(".")[0] in _OUR_OWN:
        return False
    if not file:
        return name == "__main__"
    return not os.path.realpath(file).startswith(_library_folders()) and "site-packages" not in str(file)


def describe(sign: Sign) -> str:
    """One line for the user."""
    where = sign.path.name if sign.path.name else os.fspath(sign.path)
    return (
        f"openipu: {sign.name} ({where}, line {sign.line}) is of TensorFlow 1: `import tensorflow` gives the program "
        "tensorflow.compat.v1 (OPENIPU_TF1=1; OPENIPU_TF1=0 prevents it)."
    )
