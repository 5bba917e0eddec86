"""`docs/environment.md` is what the declarations say, and the declarations are all there is."""

import ast
from pathlib import Path

from openipu.environment import flags, page
from openipu.environment.variable import declared

ROOT = Path(__file__).parents[1]
READERS = ("environ", "environb", "getenv", "getenvb")


def test_the_page_is_up_to_date():
    written = (ROOT / page.PATH).read_text(encoding="utf-8")
    assert written == page.page(), "Run `python -m openipu.environment.page` in the root of the repository."


def test_the_page_has_every_variable_once_with_its_values():
    lines = page.page().splitlines()
    for variable in declared():
        (line,) = [line for line in lines if line.startswith(f"| `{variable.name}` |")]
        assert variable.meaning in line and all(f"`{value}`" in line for value in variable.valid)


def reads(path):
    """Where a module reaches for the environment: os.environ, os.getenv, or their names imported from os."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and node.attr in READERS:
            yield node.lineno
        if isinstance(node, ast.ImportFrom) and node.module == "os" and any(a.name in READERS for a in node.names):
            yield node.lineno


def test_the_environment_is_read_in_one_place():
    inside = ROOT / "src" / "openipu" / "environment"
    assert any(list(reads(path)) for path in inside.glob("*.py"))
    # At every start of Python the import hook looks whether there is something to read, before it loads who reads it.
    hook = ROOT / "src" / "openipu" / "_hook.py"
    outside = [path for path in (ROOT / "src").rglob("*.py") if inside not in path.parents and path != hook]
    found = [f"{path.relative_to(ROOT)}:{line}" for path in outside for line in reads(path)]
    assert not found, f"Declare the variable in openipu.environment and read it there: {found}"


def test_the_page_says_of_every_flag_truly_whether_it_works():
    source = ROOT / "src" / "openipu"
    # The declaration itself, and the function that only tells programs which flags are set.
    silent = {source / "environment" / "flags.py", source / "tensorflow" / "ipu" / "utils.py"}
    used = set()
    for path in source.rglob("*.py"):
        if path not in silent:
            nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            used.update(node.attr for node in nodes if isinstance(node, ast.Attribute))
    if "running_on_ipu_model" in used:
        used |= {"use_ipu_model"}
    if "synthetic_categories" in used:
        used |= {"use_synthetic_data", "synthetic_data_categories"}
    wrong = [flag.name for flag in flags.table() if flag.works != (flag.name in used)]
    assert not wrong, f"Change Works and Accepted in openipu/environment/flags.py: {wrong}"
