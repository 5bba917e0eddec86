"""The course: notebooks are those of the scripts, exercises run untouched, solutions do what they teach."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import nbclient
import nbformat
import pytest

COURSE = pathlib.Path(__file__).parents[2] / "examples" / "course"

spec = importlib.util.spec_from_file_location("course_notebooks", COURSE / "notebooks.py")
notebooks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(notebooks)

LABS = sorted(path.stem for path in (COURSE / "exercises").glob("*.py"))
# What the last cell of a lab prints before and after the student's work, and how well it must have learnt.
UNSOLVED = {
    "lab1_keras_on_the_ipu": ("trained on the host", 0.85),
    "lab2_replicas": ("1 replicas, 16 examples", 0.85),
    "lab3_pipeline": ("1 stages", 0.85),
    "lab4_pytorch_on_the_ipu": ("trained by Classifier", 0.7),
}
SOLVED = {
    "lab1_keras_on_the_ipu": ("trained on the IPU", 0.85),
    "lab2_replicas": ("2 replicas, 128 examples", 0.85),
    "lab3_pipeline": ("2 stages", 0.85),
    "lab4_pytorch_on_the_ipu": ("trained by PoplarExecutor", 0.7),
}


def check(printed, expected):
    text, accuracy = expected
    assert text in printed
    assert float(re.search(r"test accuracy ([\d.]+)", printed)[1]) > accuracy


def only_the_word_about_the_data(errors):
    return all("OPENIPU_DATASETS=sample: mnist is" in line for line in errors.splitlines()) and errors.count("\n") <= 1


def test_every_exercise_has_a_solution_and_the_other_way_round():
    assert set(LABS) == UNSOLVED.keys() == {path.stem for path in (COURSE / "solutions").glob("*.py")}


def test_exercises_have_something_to_do_and_solutions_have_not():
    for lab in LABS:
        assert "TODO" in (COURSE / "exercises" / f"{lab}.py").read_text()
        assert "TODO" not in (COURSE / "solutions" / f"{lab}.py").read_text()


@pytest.mark.parametrize("script", notebooks.SCRIPTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_notebooks_are_those_of_the_scripts(script):
    written = script.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert written == notebooks.notebook(script), "Run `python examples/course/notebooks.py`."


# Several in one process, because most of the time goes into loading TensorFlow.
@pytest.mark.parametrize("labs", [LABS[:3], LABS[3:]], ids=["keras", "torch"])
def test_exercises_run_before_anything_is_done(labs):
    code = "import runpy, sys\nfor script in sys.argv[1:]: print('=='); runpy.run_path(script, run_name='__main__')"
    variables = {name: value for name, value in os.environ.items() if name != "OPENIPU_DATASETS"}
    # One thread: beside other tests, PyTorch on the host would spend its time waiting for the second.
    variables |= {"OMP_NUM_THREADS": "1", "OPENIPU_PROGRESS": "off"}
    command = [sys.executable, "-c", code, *(str(COURSE / "exercises" / f"{lab}.py") for lab in labs)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert only_the_word_about_the_data(done.stderr)
    for lab, printed in zip(labs, done.stdout.split("==\n")[1:], strict=True):
        check(printed, UNSOLVED[lab])


@pytest.mark.parametrize("lab", LABS)
def test_a_solution_runs_as_a_notebook_and_learns(lab, tmp_path, monkeypatch):
    monkeypatch.delenv("OPENIPU_DATASETS", raising=False)
    monkeypatch.setenv("OPENIPU_PROGRESS", "off")
    notebook = nbformat.read(COURSE / "solutions" / f"{lab}.ipynb", as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert only_the_word_about_the_data("".join(output.text for output in outputs if output.get("name") == "stderr"))
    check("".join(output.text for output in outputs if output.get("name") == "stdout"), SOLVED[lab])
