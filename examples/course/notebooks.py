"""Makes the course's notebooks from its scripts: `python examples/course/notebooks.py`.

The scripts are the source. `# %%` begins a cell of code, `# %% [markdown]` one of text.
"""

import pathlib

import nbformat

FOLDER = pathlib.Path(__file__).parent
SCRIPTS = sorted(path for folder in ("exercises", "solutions") for path in (FOLDER / folder).glob("lab*.py"))
CODE, TEXT = "# %%", "# %% [markdown]"


def cells(script):
    """(marker, lines) of every cell of a script."""
    found = []
    for line in script.read_text(encoding="utf-8").splitlines():
        if line in (CODE, TEXT):
            found.append((line, []))
        else:
            found[-1][1].append(line)
    return found


def notebook(script):
    """The notebook of a script, as text."""
    made = []
    for number, (marker, lines) in enumerate(cells(script)):
        if marker == TEXT:
            lines = [line.removeprefix("#").removeprefix(" ") for line in lines]
        make = nbformat.v4.new_markdown_cell if marker == TEXT else nbformat.v4.new_code_cell
        made.append(make("\n".join(lines).strip("\n"), id=f"cell-{number}"))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return nbformat.writes(nbformat.v4.new_notebook(cells=made, metadata=metadata)) + "\n"


if __name__ == "__main__":
    for script in SCRIPTS:
        script.with_suffix(".ipynb").write_text(notebook(script), encoding="utf-8")
        print(f"wrote {script.relative_to(FOLDER).with_suffix('.ipynb')}")
