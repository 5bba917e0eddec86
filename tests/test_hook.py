"""The import hook: the names of IPU programs lead to openipu's modules, and nothing else changes."""

import importlib
import importlib.util
import inspect
import json
import os
import pickle
import re
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from openipu import _hook

PTH = Path(_hook.__file__).parent.parent / "openipu_hook.pth"


def python(*arguments, **variables):
    """What a new interpreter prints."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **variables}
    result = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result


@pytest.fixture
def framework(tmp_path, monkeypatch):
    """A small framework `gearbox` whose `gearbox.ipu` is answered by the package `gearbox_ipu`."""

    def write(path, text=""):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(textwrap.dedent(text))

    write("gearbox/__init__.py", "value = 1")
    write("gearbox_ipu/__init__.py")
    write("gearbox_ipu/config.py", "class Config:\n    pass\n")
    write("gearbox_ipu/broken.py", "import a_dependency_nobody_has")
    write("gearbox_ipu/raises.py", "1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(_hook.ALIASES, "gearbox.ipu", "gearbox_ipu")
    monkeypatch.setitem(_hook.AFTER_IMPORT, "gearbox", _hook.offer_ipu)
    yield write
    for name in [name for name in sys.modules if name.startswith("gearbox")]:
        del sys.modules[name]


def test_the_finder_is_first_and_there_once():
    importlib.reload(_hook)
    assert [type(finder) for finder in sys.meta_path].count(_hook.Finder) == 1
    assert isinstance(sys.meta_path[0], _hook.Finder)
    assert [type(finder).__module__ for finder in sys.meta_path].count("openipu._hook") == 1


def test_an_alias_is_the_same_module_and_the_module_keeps_its_own_identity(framework):
    alias = importlib.import_module("gearbox.ipu.config")
    real = importlib.import_module("gearbox_ipu.config")
    assert alias is real
    assert sys.modules["gearbox.ipu"] is sys.modules["gearbox_ipu"]
    assert (real.__name__, real.__spec__.name, real.__package__) == (
        "gearbox_ipu.config",
        "gearbox_ipu.config",
        "gearbox_ipu",
    )
    assert importlib.reload(alias) is real
    assert "class Config" in inspect.getsource(alias)
    assert type(pickle.loads(pickle.dumps(alias.Config()))) is real.Config


def test_the_real_name_may_be_imported_first(framework):
    real = importlib.import_module("gearbox_ipu.config")
    assert importlib.import_module("gearbox.ipu.config") is real


def test_a_module_may_import_itself_by_its_alias_while_it_loads(framework):
    framework("gearbox_ipu/__init__.py", "import gearbox.ipu.circular")
    framework("gearbox_ipu/circular.py", "from gearbox import ipu as through_the_alias")
    circular = importlib.import_module("gearbox.ipu.circular")
    assert circular.through_the_alias is sys.modules["gearbox_ipu"]


def test_threads_importing_both_names_get_one_module(framework):
    found, start = [], threading.Barrier(8)

    def load(name):
        start.wait()
        found.append(importlib.import_module(name))

    names = ["gearbox.ipu.config", "gearbox_ipu.config"] * 4
    threads = [threading.Thread(target=load, args=(name,), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(found) == 8
    assert len({id(module) for module in found}) == 1


def test_the_attribute_is_loaded_when_touched(framework):
    gearbox = importlib.import_module("gearbox")
    assert "gearbox_ipu" not in sys.modules
    with pytest.raises(AttributeError, match="module 'gearbox' has no attribute 'ipux'"):
        _ = gearbox.ipux
    assert gearbox.ipu is sys.modules["gearbox_ipu"]
    assert vars(gearbox)["ipu"] is gearbox.ipu
    assert vars(gearbox.__loader__).keys() == {"name", "path"}
    assert importlib.reload(gearbox).ipu is sys.modules["gearbox_ipu"]


def test_a_getattr_the_module_already_has_still_answers(framework):
    framework("gearbox/__init__.py", "def __getattr__(name):\n    return name.upper()\n")
    gearbox = importlib.import_module("gearbox")
    assert gearbox.other == "OTHER"
    assert gearbox.ipu is sys.modules["gearbox_ipu"]


def test_the_engine_of_a_package_is_loaded_with_it(framework, monkeypatch):
    framework("gearbox_engine.py", "from gearbox_ipu.config import Config\n")
    monkeypatch.setitem(_hook.ENGINES, "gearbox_ipu", ("gearbox_engine",))
    importlib.import_module("gearbox.ipu")
    assert sys.modules["gearbox_engine"].Config is sys.modules["gearbox_ipu.config"].Config
    monkeypatch.delitem(sys.modules, "gearbox_engine")


def test_looking_for_an_alias_does_not_load_it(framework):
    assert importlib.util.find_spec("gearbox.ipu") is not None
    assert "gearbox_ipu" not in sys.modules


@pytest.mark.parametrize("name", ["gearbox.ipu.nothing", "gearbox.ipu.nothing.below", "gearbox.ipu.config.below"])
def test_a_module_that_does_not_exist_is_the_ordinary_error(framework, name):
    with pytest.raises(ModuleNotFoundError, match=re.escape(f"No module named '{name.removesuffix('.below')}")):
        importlib.import_module(name)


def test_errors_inside_a_module_are_not_hidden(framework):
    with pytest.raises(ModuleNotFoundError, match="a_dependency_nobody_has"):
        importlib.import_module("gearbox.ipu.broken")
    with pytest.raises(ZeroDivisionError):
        importlib.import_module("gearbox.ipu.raises")


def test_errors_of_the_package_itself_are_not_taken_for_a_missing_attribute(framework):
    framework("gearbox_ipu/__init__.py", "import a_dependency_nobody_has")
    with pytest.raises(ModuleNotFoundError, match="a_dependency_nobody_has"):
        exec("from gearbox import ipu")


def test_starting_python_loads_three_small_modules_in_less_than_5_ms():
    def start():
        printed = python("-X", "importtime", "-c", "pass", PYTHONDONTWRITEBYTECODE="").stderr
        rows = re.findall(r"import time:\s+(\d+) \|\s+(\d+) \|( +)(\S+)", printed)
        ours = {name: (int(cumulative), len(indent)) for _, cumulative, indent, name in rows if "openipu" in name}
        assert ours.keys() == {"openipu", "openipu.version", "openipu._hook"}
        hook = [name for *_, name in rows].index("openipu._hook")
        inside = []
        for *_, indent, name in reversed(rows[:hook]):
            if len(indent) <= ours["openipu._hook"][1]:
                break
            inside.append(name)
        assert set(inside) == {"openipu", "openipu.version"}
        return ours["openipu._hook"][0]

    start()  # Writes the bytecode, which an installation has.
    assert min(start() for _ in range(5)) < 5000


def test_without_site_there_is_no_hook_and_isolated_there_is():
    show = "import sys; print(type(sys.meta_path[0]).__name__)"
    assert python("-S", "-c", show).stdout.strip() != "Finder"
    assert python("-I", "-c", show).stdout.strip() == "Finder"


def test_python_starts_when_openipu_is_gone_or_broken(tmp_path):
    gone = python("-S", "-c", f"{PTH.read_text()}\nprint('alive')")
    assert (gone.stdout, gone.stderr) == ("alive\n", "")
    (tmp_path / "openipu").mkdir()
    (tmp_path / "openipu" / "__init__.py").write_text("raise RuntimeError('broken')")
    assert python("-c", "print('alive')", PYTHONPATH=str(tmp_path)).stdout == "alive\n"


def test_modules_run_with_m_and_spawned_processes_have_the_hook(tmp_path):
    (tmp_path / "spawns.py").write_text(
        textwrap.dedent("""
            import multiprocessing, subprocess, sys

            def first_finder():
                return type(sys.meta_path[0]).__name__

            if __name__ == "__main__":
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    print(first_finder(), pool.apply(first_finder))
        """)
    )
    assert python("-m", "spawns", PYTHONPATH=str(tmp_path)).stdout.split() == ["Finder", "Finder"]


SPELLINGS = """
import sys
import tensorflow as tf

assert not [name for name in sys.modules if name.startswith("openipu.tensorflow")], "loaded before it was asked for"

from tensorflow.python import ipu

assert "openipu.tensorflow.keras.loop" in sys.modules, "the first step would wait for it"
import tensorflow.python.ipu.ops as by_alias
import openipu.tensorflow.ipu.ops as by_name
import openipu.tensorflow.keras.ipu as ours

assert ipu is sys.modules["openipu.tensorflow.ipu"] is sys.modules["tensorflow.python.ipu"]
assert by_alias is by_name

found = [tf.keras.ipu, tf.compat.v1.keras.ipu]
from tensorflow.keras import ipu as found_in_tensorflow_keras
from tensorflow import keras as keras_of_tensorflow
import tensorflow.keras.ipu as tensorflow_keras_ipu
found += [found_in_tensorflow_keras, keras_of_tensorflow.ipu, tensorflow_keras_ipu]
"""

KERAS_3 = """
import keras
from keras import ipu as found_in_keras
import keras._tf_keras.keras.ipu as found_in_tf_keras
found += [keras.ipu, found_in_keras, found_in_tf_keras]
"""

KERAS_2 = """
import tf_keras
from tf_keras import ipu as found_in_keras
import tf_keras.api._v2.keras.ipu as found_in_v2
found += [tf_keras.ipu, found_in_keras, found_in_v2]
assert tf.keras.layers.Dense.__module__.startswith("tf_keras")

import numpy as np
from openipu import datasets
from tensorflow.keras.datasets.mnist import load_data
(images, labels), _ = load_data(path="mnist.npz")
np.testing.assert_array_equal(images[:5000], datasets.mnist()[0][0])
(images, labels), _ = tf.keras.datasets.fashion_mnist.load_data()
np.testing.assert_array_equal(images[:5000], datasets.fashion_mnist()[0][0])

import keras
import keras.layers
from keras.datasets import mnist
from keras.ipu.optimizers.als_optimizer import ALSOptimizer
assert keras is tf_keras and keras.layers is tf_keras.layers and mnist is tf_keras.datasets.mnist
found += [keras.ipu]

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
with ipu.ipu_strategy.IPUStrategy().scope():
    model = keras.Sequential([tf.keras.layers.Dense(1), keras.layers.Activation("tanh")])
    model.compile(ALSOptimizer(keras.optimizers.SGD()), "mse")
    model.fit(np.ones((8, 2), "float32"), np.ones((8, 1), "float32"), batch_size=4, verbose=0)
"""

OTHER_PROGRAM = """
import keras
assert keras.__name__ == "keras" and keras.__version__ > "3"
"""

SAME = "assert all(module is ours for module in found), found"


def test_every_spelling_with_keras_3():
    python("-c", SPELLINGS + KERAS_3 + SAME)


def test_every_spelling_with_keras_2():
    python("-c", SPELLINGS + KERAS_2 + SAME, TF_USE_LEGACY_KERAS="1", OPENIPU_DATASETS="sample")


def test_programs_without_ipus_keep_the_keras_they_import():
    python("-c", OTHER_PROGRAM, TF_USE_LEGACY_KERAS="1")


def test_a_notebook_finds_ipu(tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient")
    import nbformat

    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    cells = [
        "from tensorflow.python import ipu\nfrom keras import ipu as keras_ipu",
        "import json\nprint(json.dumps([ipu.__name__, keras_ipu.__name__]))",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    assert json.loads(notebook.cells[1].outputs[0].text) == ["openipu.tensorflow.ipu", "openipu.tensorflow.keras.ipu"]


OLD = """
from tensorflow.python import ipu
from tensorflow.python.keras.datasets import mnist
from tensorflow.python.keras import datasets, backend, preprocessing
from tensorflow.python.keras.optimizer_v2 import optimizer_v2
from tensorflow.python.keras.applications.resnet50 import ResNet50
import keras

assert datasets is keras.datasets and mnist is keras.datasets.mnist
assert ResNet50 is keras.applications.ResNet50 and preprocessing.image
assert backend.floatx() == "float32" and optimizer_v2.OptimizerV2
try:
    from tensorflow.python.keras import nothing_of_the_kind
except ImportError:
    print("done")
"""


def test_old_addresses_of_keras_lead_to_the_keras_there_is(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(OLD)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "done", done.stderr


def test_programs_without_ipus_miss_what_tensorflow_misses(tmp_path):
    script = tmp_path / "program.py"
    script.write_text("import tensorflow.python.keras.datasets")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError: No module named 'tensorflow.python.keras.datasets'" in done.stderr
