"""Installing openipu puts the hook in place, and uninstalling takes everything away."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

ALIAS = """
import sys
from tensorflow.python import ipu
assert ipu is sys.modules["openipu.tensorflow.ipu"]
print(ipu.__file__)
"""


def run(*command):
    """What a command prints; it sees neither this repository nor the variables that would."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"TF_CPP_MIN_LOG_LEVEL": "3", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd="/")
    return result.returncode, result.stdout, result.stderr


def succeed(*command):
    code, output, errors = run(*command)
    assert code == 0, errors
    return output


class Environment:
    """A virtual environment with nothing in it."""

    def __init__(self, path):
        succeed(sys.executable, "-m", "venv", "--without-pip", str(path))
        bin_name = "Scripts" if os.name == "nt" else "bin"
        self.python = str(path / bin_name / "python")
        self.packages = Path(
            succeed(self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        )
        self.root = path

    def pip(self, *arguments):
        return succeed(sys.executable, "-m", "pip", "--python", self.python, *arguments)

    def install(self, *arguments):
        self.pip("install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", *arguments)

    def borrow_packages(self):
        """Let it see the packages of this interpreter; as a plain path, so that none of their .pth files run."""
        (self.packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def files(self):
        return {path for path in self.root.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    directory = tmp_path_factory.mktemp("wheel")
    succeed(
        sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation",
        "--wheel-dir", str(directory), str(ROOT),
    )  # fmt: skip
    (path,) = directory.glob("openipu-*.whl")
    return path


def test_the_wheel_has_the_hook_at_its_root_and_the_data(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "openipu_hook.pth" in names
    assert {"openipu/_hook.py", "openipu/datasets/mnist.npz", "openipu/datasets/LICENSES.md"} <= set(names)
    assert len(names) == len(set(names))


def test_a_wheel_made_from_the_sdist_has_the_same_files(wheel, tmp_path):
    succeed(
        sys.executable, "-c",
        "import os, sys; os.chdir(sys.argv[1]); from hatchling.build import build_sdist; build_sdist(sys.argv[2])",
        str(ROOT), str(tmp_path),
    )  # fmt: skip
    (sdist,) = tmp_path.glob("openipu-*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = (path for path in tmp_path.iterdir() if path.is_dir())
    succeed(
        sys.executable, "-c",
        "import os, sys; os.chdir(sys.argv[1]); from hatchling.build import build_wheel; build_wheel(sys.argv[2])",
        str(source), str(tmp_path),
    )  # fmt: skip
    (again,) = tmp_path.glob("openipu-*.whl")
    assert sorted(zipfile.ZipFile(again).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


def test_an_installed_wheel_answers_to_the_alias_and_uninstalls_without_a_trace(wheel, tmp_path):
    environment = Environment(tmp_path / "venv")
    before = environment.files()
    environment.install(str(wheel))

    # Without the TensorFlow extra, nor anything else openipu needs: Python starts, and errors are the ordinary ones.
    code, _, errors = run(environment.python, "-c", "import tensorflow.python.ipu")
    assert code == 1
    assert errors.strip().endswith("ModuleNotFoundError: No module named 'tensorflow'")
    assert run(environment.python, "-c", "import keras.ipu")[2].strip().endswith("No module named 'keras'")

    environment.borrow_packages()
    assert succeed(environment.python, "-c", ALIAS).startswith(str(environment.packages))
    (environment.packages / "borrowed.pth").unlink()

    environment.pip("uninstall", "--quiet", "--yes", "openipu")
    assert environment.files() == before
    assert not list(environment.packages.glob("openipu*"))


def test_an_editable_install_has_the_hook_and_uninstalls_without_a_trace(tmp_path):
    environment = Environment(tmp_path / "venv")
    environment.borrow_packages()  # hatchling
    before = environment.files()
    environment.install("--editable", str(ROOT))
    show = "import sys, openipu._hook as hook; print(isinstance(sys.meta_path[0], hook.Finder), hook.__file__)"
    assert succeed(environment.python, "-c", show).split() == ["True", str(ROOT / "src" / "openipu" / "_hook.py")]
    environment.pip("uninstall", "--quiet", "--yes", "openipu")
    assert environment.files() == before
