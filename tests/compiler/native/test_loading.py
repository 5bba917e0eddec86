"""The native library: used where it can be had, never a crash where it cannot, and part of what executables are."""

import logging
import os
import stat
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from openipu.compiler import Cache, compile_program, native
from openipu.compiler.native import build, loading, onednn
from openipu.compiler.serialised import Loaded
from openipu.program import Plan, Program, Slot

ROOT = Path(__file__).parents[3]


def headers(prefix, version):
    folder = prefix / "include" / "oneapi" / "dnnl"
    folder.mkdir(parents=True)
    major, minor = version.split(".")
    text = f"#define DNNL_VERSION_MAJOR {major}\n#define DNNL_VERSION_MINOR {minor}\n"
    (folder / "dnnl_version.h").write_text(text)
    return prefix / "include"


def shared_library(prefix, version, folder="lib"):
    place = prefix / folder
    place.mkdir(parents=True)
    (place / f"libdnnl.so.{version}").touch()
    (place / "libdnnl.so.3").symlink_to(f"libdnnl.so.{version}")
    return place / "libdnnl.so.3"


def test_the_newest_onednn_is_taken_with_headers_that_fit_it(tmp_path, monkeypatch):
    wheel, conda = tmp_path / "wheel", tmp_path / "conda"
    monkeypatch.setattr(onednn, "_prefixes", lambda conda: [wheel, tmp_path / "conda"])
    assert onednn.find() is None
    shared_library(wheel, "3.2")
    assert onednn.find().include is None
    old = headers(wheel, "3.2")
    assert onednn.find() == onednn.OneDNN(wheel / "lib" / "libdnnl.so.3", (3, 2), old)
    newer = shared_library(conda, "3.9", folder="lib64")
    assert onednn.find() == onednn.OneDNN(newer, (3, 9), old)
    new = headers(conda, "3.9")
    assert onednn.find().include == new
    assert onednn.find(str(wheel)).version == (3, 2)


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """A process that has not looked for the library yet, with an empty cache folder."""
    loading._found.cache_clear()
    monkeypatch.setattr(loading, "cache_folder", lambda: tmp_path / "native")
    monkeypatch.setenv("OPENIPU_NATIVE", "auto")
    yield tmp_path
    loading._found.cache_clear()


def test_without_onednn_programs_do_without_unless_they_insist(fresh, monkeypatch, caplog):
    monkeypatch.setenv("OPENIPU_ONEDNN", str(fresh / "nowhere"))
    with caplog.at_level(logging.INFO, "openipu.native"):
        assert native.library() is None
    assert "there is no oneDNN" in caplog.text and "there is no oneDNN" in native.why_not()
    monkeypatch.setenv("OPENIPU_NATIVE", "on")
    with pytest.raises(RuntimeError, match="OPENIPU_NATIVE=on, but there are no native kernels: there is no oneDNN"):
        native.library()
    monkeypatch.setenv("OPENIPU_NATIVE", "off")
    assert native.library() is None and native.why_not() == "OPENIPU_NATIVE=off"


def test_a_compiler_that_fails_is_told_and_leaves_nothing_behind(fresh, monkeypatch):
    shared_library(fresh / "prefix", "3.2")
    headers(fresh / "prefix", "3.2")
    monkeypatch.setenv("OPENIPU_ONEDNN", str(fresh / "prefix"))
    monkeypatch.setenv("CXX", "false")
    assert native.library() is None
    assert native.why_not().startswith("the compiler failed: false ")
    assert [path.suffix for path in (fresh / "native").iterdir()] == [".lock"]
    loading._found.cache_clear()
    monkeypatch.setenv("CXX", "there-is-no-such-compiler")
    assert native.library() is None and "no C++ compiler" in native.why_not()


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="Files belong to users there.")
def test_a_library_that_others_can_write_is_not_loaded(fresh, monkeypatch):
    shared_library(fresh / "prefix", "3.2")
    monkeypatch.setenv("OPENIPU_ONEDNN", str(fresh / "prefix"))
    monkeypatch.setattr(build, "fingerprint", lambda *surroundings: "same")
    path = fresh / "native" / "same.so"
    path.parent.mkdir()
    path.touch()
    path.chmod(0o777)
    assert native.library() is None and "could have been written by another user" in native.why_not()


def test_a_compiled_library_is_private(kernels):
    assert not stat.S_IMODE(kernels.path.stat().st_mode) & 0o022


def test_loading_it_leaves_no_setting_of_openmp_behind(kernels):
    code = "import os; from openipu.compiler import native; native.library(); print('OMP_WAIT_POLICY' in os.environ)"
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def convolving() -> Program:
    """A program with a convolution that is large enough for a native kernel."""

    def step(shared, local, batch, key):
        y = lax.conv_general_dilated(batch[0], shared[0], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return [], [], [y.sum((1, 2))]

    weights, images = Slot("w", (3, 3, 16, 16), np.float32), Slot("x", (8, 16, 16, 16), np.float32)
    return Program("convolving", (weights,), (), (images,), step, identity="convolving")


def run(executable):
    random = np.random.default_rng(0)
    weights = jnp.asarray(random.standard_normal((3, 3, 16, 16)), jnp.float32)
    x = random.standard_normal((1, 8, 16, 16, 16)).astype(np.float32)
    with jax.enable_x64(True):
        outputs = executable.call([weights], [], [jnp.asarray(x)], jnp.uint64(0))[2]
    return np.asarray(outputs[0])


def test_a_cached_executable_calls_the_kernels_again_and_is_not_met_without_them(kernels, tmp_path, monkeypatch):
    executables = [compile_program(convolving(), Plan(1), cache=Cache(tmp_path)) for _ in range(2)]
    assert [isinstance(executable.call, Loaded) for executable in executables] == [False, True]
    assert "winograd_convolution" in executables[0].call.as_text()
    monkeypatch.setenv("OPENIPU_NATIVE", "off")
    without = compile_program(convolving(), Plan(1), cache=Cache(tmp_path))
    assert not isinstance(without.call, Loaded) and "openipu_" not in without.call.as_text()
    first, *others = (run(executable) for executable in (*executables, without))
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-4, atol=5e-6 * np.abs(first).max())


def test_another_process_finds_it_in_the_cache(kernels, tmp_path):
    expected = run(compile_program(convolving(), Plan(1), cache=Cache(tmp_path)))
    code = f"""
import numpy as np
from openipu.compiler import Cache, compile_program
from openipu.compiler.serialised import Loaded
from openipu.program import Plan
from tests.compiler.native.test_loading import convolving, run
executable = compile_program(convolving(), Plan(1), cache=Cache({str(tmp_path)!r}))
assert isinstance(executable.call, Loaded)
np.save({str(tmp_path / "result.npy")!r}, run(executable))
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    np.testing.assert_array_equal(np.load(tmp_path / "result.npy"), expected)
