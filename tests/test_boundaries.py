"""Nothing but a framework's boundary reaches past its public API."""

import ast
import functools
import pathlib

import pytest

import openipu

ROOT = pathlib.Path(openipu.__file__).parent
FILES = {str(path.relative_to(ROOT)): path for path in sorted(ROOT.rglob("*.py"))}
BOUNDARIES = ("jax_boundary.py", "tensorflow/boundary.py", "torch/boundary.py", "tensorflow/keras/versions/")
PRIVATE_PACKAGES = (
    "jax._src", "jax.interpreters", "jaxlib", "keras.src", "tensorflow.compiler", "tensorflow.core",
    "tensorflow.python", "tf_keras.src",
)  # fmt: skip
# Not a framework's: Python's own, and operators of ATen, which are looked up when their lowerings are registered.
PYTHONS_OWN = {"sys._getframe", "os._exit", "forkserver._forkserver", "copyreg._reconstructor"}


@functools.cache
def tree(path):
    return ast.parse(FILES[path].read_text())


def own_names():
    """Every name with a leading underscore that openipu defines itself."""
    found = {"_asdict", "_fields"}
    for path in FILES:
        if path.startswith(BOUNDARIES):
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found |= {node.attr} if isinstance(node.value, ast.Name) and node.value.id == "self" else set()
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.keyword) and node.arg:
                found.add(node.arg)
    return found


OWN = own_names()


def private_imports(node):
    if isinstance(node, ast.Import):
        modules = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.level == 0:
        modules = [f"{node.module}.{alias.name}" for alias in node.names]
    else:
        return
    for module in modules:
        parts = module.split(".")
        foreign = parts[0] in ("jax", "keras", "tensorflow", "tf_keras", "torch") and any(
            part.startswith("_") for part in parts
        )
        # That is openipu itself, under the name users know.
        if module != "tensorflow.python.ipu" and (foreign or module.startswith(PRIVATE_PACKAGES)):
            yield module


def private_attributes(node):
    if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
        return
    owner = ast.unparse(node.value)
    if owner.startswith(("self", "cls", "super()", "aten")) or node.attr in OWN or node.attr.startswith("_openipu"):
        return
    if f"{owner}.{node.attr}" not in PYTHONS_OWN:
        yield f"{owner}.{node.attr}"


@pytest.mark.parametrize("path", [path for path in FILES if not path.startswith(BOUNDARIES)])
def test_no_private_api_is_used_outside_of_a_boundary(path):
    found = [use for node in ast.walk(tree(path)) for use in (*private_imports(node), *private_attributes(node))]
    assert not found, (
        f"{path} uses {', '.join(found)}, which frameworks may change at any time. Put it into the framework's "
        f"boundary ({', '.join(BOUNDARIES)}), with a row in its table, and import it from there."
    )
